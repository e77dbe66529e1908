//! Pages that are new are seen, which embedding alone would not.

fn main() {
    for dir in ["../daemon/pages", "../distro/pages"] {
        println!("cargo:rerun-if-changed={dir}");
    }
}
