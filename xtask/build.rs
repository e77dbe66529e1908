//! Has cargo build again when a page is added, which embedding alone does not notice.

fn main() {
    for dir in ["../daemon/pages", "../distro/pages"] {
        println!("cargo:rerun-if-changed={dir}");
    }
}
