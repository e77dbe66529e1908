//! `include_dir!` does not tell cargo about new files; this does.

fn main() {
    println!("cargo:rerun-if-changed=template");
}
