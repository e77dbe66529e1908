//! Makes cargo rebuild the crate after a new file in the template, which `include_dir!` does not report.

fn main() {
    println!("cargo:rerun-if-changed=template");
}
