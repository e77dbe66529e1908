//! Charts, and what carries them.

use archive::gzip;

use super::{append, flip, forged, program};
use crate::{arch::Arch, tree::Tree};

#[test]
fn forged_charts_are_named() {
    let version = env!("CARGO_PKG_VERSION");
    let main = format!("assets/rke2-multus/rke2-multus-{version}.tgz");
    let chart = format!("charts/{main}");
    // Another chart, packed as ours are: a value differs.
    let other = |tree: &Tree| {
        let tar = gzip::decompress(tree.get(&chart).unwrap(), 1 << 20).unwrap();
        let at = tar
            .windows(9)
            .position(|part| part == b"hostPath:")
            .unwrap();
        let mut tar = tar;
        tar[at] = b'H';
        gzip::compress(&tar)
    };
    forged(
        |tree| {
            let mut tar = gzip::decompress(tree.get(&chart).unwrap(), 1 << 20).unwrap();
            let mut places = tar.windows(8);
            let at = places.rposition(|part| part == b"\"arm64\",").unwrap();
            tar[at + 1] = b'x';
            tree.add(&chart, gzip::compress(&tar));
        },
        "it chooses nodes of amd64, xrm64, arm, the images are made for",
    );
    forged(
        |tree| tree.add(&chart, other(tree)),
        "charts/index.yaml does not follow from the charts",
    );
    forged(
        append(&chart, b"x"),
        "1 bytes after the end of the gzip stream",
    );
    forged(
        |tree| {
            let index = String::from_utf8(tree.get("charts/index.yaml").unwrap().to_vec()).unwrap();
            let digest = |bytes: &[u8]| archive::digest::sha256(bytes).hex();
            let forged = other(tree);
            let index = index.replace(&digest(tree.get(&chart).unwrap()), &digest(&forged));
            tree.add("charts/index.yaml", index);
            tree.add(&chart, forged);
        },
        &format!("manifests/rke2/multus.yaml does not bring {chart}"),
    );
    forged(
        |tree| drop(tree.0.remove(&chart)),
        &format!("{chart} is missing"),
    );
    let embedded = format!("bindata/embed/static/charts/rke2-multus-{version}.tgz");
    forged(flip(&embedded), &format!("{embedded} does not follow"));
    let go = "bindata/go/static/zz_generated_bindata.go";
    forged(append(go, b"// evil\n"), &format!("{go} does not follow"));
    forged(
        |tree| {
            let evil = vec![(
                format!("charts/rke2-multus-{version}.tgz"),
                b"evil".to_vec(),
            )];
            let source = chart::bindata::go("static", Some("!no_stage"), &evil);
            tree.add(go, source);
        },
        &format!("its asset charts/rke2-multus-{version}.tgz is not the packed one"),
    );
    forged(
        append("manifests/k3s/multus.yaml", b"# evil\n"),
        "does not follow from charts/ and manifests/",
    );
    forged(
        append("manifests/rke2/multus.yaml", b"# evil\n"),
        "bin/amd64/multus-distro does not carry manifests/rke2/multus.yaml",
    );
    forged(
        |tree| {
            let evil = program(Arch::Arm, b"carries nothing");
            tree.add_program("bin/arm/multus-distro", evil);
        },
        "bin/arm/multus-distro does not carry charts/",
    );
}
