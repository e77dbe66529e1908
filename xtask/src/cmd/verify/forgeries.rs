//! Every way to forge a release, with all checksums rewritten to match.

mod inside;

use std::{
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt as _,
    path::Path,
};

use archive::{gzip, layout::Layout};
use chart::BuildSettings;
use release::{
    parts::{self, README},
    signatures::Trust,
};

use super::{
    Standard, checkout,
    sample::{ARCHES, layout, program, programs, release, release_of, reseal},
    verify::{check, dir},
};
use crate::{
    arch::Arch,
    description::{self, Release},
    tree::Tree,
};

const ARCHIVE: &str = "airgap/multus-airgap-images-arm.tar";

#[track_caller]
fn refused(tree: &Tree, expected: &str) {
    refused_by(tree, Standard::Checkout(&checkout()), expected);
}

#[track_caller]
fn refused_by(tree: &Tree, standard: Standard<'_>, expected: &str) {
    let error = check(tree, |_| standard).expect_err(expected);
    let error = format!("{error:#}");
    assert!(error.contains(expected), "{error}");
    assert_eq!(error.lines().count(), 1, "{error}");
}

#[track_caller]
fn forged(change: impl FnOnce(&mut Tree), expected: &str) {
    let mut tree = release();
    change(&mut tree);
    reseal(&mut tree);
    refused(&tree, expected);
}

fn flip(path: &str) -> impl FnOnce(&mut Tree) {
    move |tree| {
        let file = tree.0.get_mut(path).unwrap();
        *file.bytes.last_mut().unwrap() ^= 1;
    }
}

fn append(path: &str, text: &[u8]) -> impl FnOnce(&mut Tree) {
    move |tree| tree.0.get_mut(path).unwrap().bytes.extend_from_slice(text)
}

#[test]
fn sound_release_is_accepted() {
    let tree = release();
    let checkout = checkout();
    let release = check(&tree, |_| Standard::Checkout(&checkout)).unwrap();
    assert_eq!(release.architectures, ["amd64", "arm"]);
    assert_eq!(release.files.len() + 2, tree.0.len());
}

#[test]
fn modes_are_described_and_checked() {
    let tree = release();
    let description = Release::parse(tree.get(description::FILE).unwrap()).unwrap();
    let mode = |path: &str| {
        let file = description.files.iter().find(|file| file.path == path);
        file.unwrap().mode.clone()
    };
    assert_eq!(mode("bin/arm/multus-shim"), "0755");
    assert_eq!(mode("charts/index.yaml"), "0644");
    let copy = tempfile::tempdir().unwrap();
    tree.write_new(copy.path()).unwrap();
    let checkout = checkout();
    let standard = Standard::Checkout(&checkout);
    dir(copy.path(), &Trust::default(), |_| standard).unwrap();
    for (path, mode, expected) in [
        (
            "bin/arm/multus-shim",
            0o644,
            "its mode is 0644, release.json says 0755",
        ),
        (
            "charts/index.yaml",
            0o755,
            "its mode is 0755, release.json says 0644",
        ),
    ] {
        let full = copy.path().join(path);
        let former = fs::metadata(&full).unwrap().permissions();
        fs::set_permissions(&full, Permissions::from_mode(mode)).unwrap();
        let error = format!(
            "{:#}",
            dir(copy.path(), &Trust::default(), |_| standard).unwrap_err()
        );
        assert!(error.contains(&format!("{path}: {expected}")), "{error}");
        assert!(error.contains("chmod 755 DIR/bin/*/*"), "{error}");
        fs::set_permissions(&full, former).unwrap();
    }
    dir(copy.path(), &Trust::default(), |_| standard).unwrap();
}

#[test]
fn release_of_another_version_is_judged_by_its_own_description() {
    let sound = release_of("9.8.7");
    assert_eq!(
        check(&sound, |_| Standard::Description).unwrap().version,
        "9.8.7"
    );
    // As an older or newer checkout made it: other pages, lists, limits, assets and programs, with its own description of them.
    let other = |change: &dyn Fn(&mut Tree, &mut Release)| {
        let mut tree = sound.clone();
        let mut release = Release::parse(tree.get(description::FILE).unwrap()).unwrap();
        change(&mut tree, &mut release);
        release.files = description::files(&tree);
        release.seal(&mut tree).unwrap();
        tree
    };
    let tree = other(&|tree, release| {
        tree.add("man/multus-distro.1", "other words");
        tree.0.remove("completions/multus-distro.bash");
        tree.0.remove("manifests/kubernetes/multus.yaml");
        let list = "rke2/rke2-images-multus.linux-arm.txt";
        tree.0.remove(&format!("airgap/{list}"));
        let sums = "airgap/sha256sum-arm.txt";
        let text = String::from_utf8(tree.get(sums).unwrap().to_vec()).unwrap();
        let lines = text.split_inclusive('\n');
        let others: String = lines
            .filter(|line| !line.trim_end().ends_with(list))
            .collect();
        tree.add(sums, others);
        let name = "docker.io/multusrs/multus:v9.8.7\n";
        tree.add("airgap/other-list.txt", name);
        tree.add("bindata/embed/deploy/other.yaml", "a: 1\n");
        tree.add_program("bin/arm/further", program(Arch::Arm, b"further"));
        release.budgets.remove(0);
        release.budgets[0].limit += 1;
    });
    check(&tree, |_| Standard::Description).unwrap();
    refused(
        &tree,
        "airgap/rke2/rke2-images-multus.linux-arm.txt is missing",
    );
    let forged = |change: &dyn Fn(&mut Tree, &mut Release), expected: &str| {
        refused_by(&other(change), Standard::Description, expected);
    };
    let list = "airgap/multus-images.txt";
    forged(
        &|tree, _| append(list, b"docker.io/x/y:1\n")(tree),
        "airgap/multus-images.txt does not follow from oci/: docker.io/x/y:1",
    );
    forged(
        &|tree, _| append(list, b"docker.io/multusrs/multus:v9.8.7@sha256:00\n")(tree),
        "does not follow from oci/",
    );
    let plain = ::release::charts::PLAIN_MANIFEST;
    forged(
        &|tree, _| append(plain, b"---\nimage: \"evil/multus:v9.8.7\"\n")(tree),
        "manifests/kubernetes/multus.yaml runs {\"evil/multus:v9.8.7\", \"multusrs/multus:v9.8.7\"}, which are not the images of this release",
    );
    let embedded = "bindata/embed/static/charts/k3s-multus-9.8.7.tgz";
    forged(&|tree, _| flip(embedded)(tree), "is not the packed one");
    forged(
        &|tree, _| flip("bin/arm/multus-daemon")(tree),
        "in its layer is not bin/arm/multus-daemon",
    );
    forged(
        &|tree, _| tree.add("notes", ""),
        "notes is not part of a release",
    );
    forged(&|_, release| release.budgets[0].size += 1, "its budgets");
    forged(
        &|_, release| release.version = "9.8.8".into(),
        "oci has docker.io/multusrs/multus:v9.8.7, the image of this release is docker.io/multusrs/multus:v9.8.8",
    );
    let sums = "airgap/sha256sum-arm.txt";
    forged(
        &|tree, _| append(sums, b"x")(tree),
        "sha256sum-arm.txt is damaged",
    );
}

/// A distro that publishes under its own names gets a release that agrees with itself, and nothing of it has other names.
#[test]
fn images_have_the_names_of_the_build_everywhere() {
    let settings = BuildSettings {
        version: env!("CARGO_PKG_VERSION").into(),
        images: "registry.example:5000/team/hardened-".parse().unwrap(),
    };
    let tree = release_of(&settings);
    let checkout = checkout();
    for standard in [Standard::Checkout(&checkout), Standard::Description] {
        let release = check(&tree, |_| standard).unwrap();
        assert_eq!(release.images[0].reference, settings.image());
        assert!(
            release
                .budgets
                .iter()
                .any(|one| one.what.starts_with(&settings.image()))
        );
    }
    let stem = "sbom/arm/image-hardened-multus";
    assert!(tree.get(&format!("{stem}.cdx.json")).is_some());
    // The manual names the default of the option.
    let others = tree.0.iter().filter(|(path, _)| !path.starts_with("man/"));
    for (path, file) in others {
        let is_packed = [".zst", ".gz", ".tgz"]
            .iter()
            .any(|end| path.ends_with(end));
        let other = b"docker.io/multusrs/";
        assert!(
            is_packed || !release::elf::contains(&file.bytes, other),
            "{path}"
        );
    }
    let mut other = tree.clone();
    let mut release = Release::parse(other.get(description::FILE).unwrap()).unwrap();
    release.image_prefix = "rancher/".parse().unwrap();
    release.seal(&mut other).unwrap();
    let expected = "the image of this release is docker.io/rancher/multus:v";
    refused_by(&other, Standard::Description, expected);
    // Charts and programs of one build, images of another.
    let mixed = |images: &str, expected: &str| {
        let other = BuildSettings {
            images: images.parse().unwrap(),
            ..settings.clone()
        };
        let mut mixed = release_of(&other);
        for part in ["charts/", "manifests/", "bindata/"] {
            let below: Vec<_> = tree
                .below(part)
                .map(|(path, file)| (path.to_owned(), file.clone()))
                .collect();
            for (path, file) in below {
                mixed.0.insert(format!("{part}{path}"), file);
            }
        }
        reseal(&mut mixed);
        refused_by(&mixed, Standard::Description, expected);
    };
    mixed(
        "registry.example/team/hardened-",
        "its values name no image of this release",
    );
}

#[test]
fn every_file_of_a_release_has_a_row_and_every_row_a_file() {
    let tree = release();
    for path in tree.0.keys() {
        assert!(parts::of(path).is_some(), "{path} has no row in {README}");
    }
    let text = String::from_utf8(tree.get(README).unwrap().to_vec()).unwrap();
    for part in parts::PARTS.iter() {
        let row = format!("| `{}` | {} |", part.path, part.what);
        assert_eq!(text.matches(&row).count(), 1, "{row} in {text}");
    }
    forged(
        append(README, b"x"),
        "README.md does not follow from the files of the release",
    );
    forged(|tree| drop(tree.0.remove(README)), "README.md is missing");
    forged(
        |tree| tree.add("NOTES.md", ""),
        "NOTES.md is not part of a release",
    );
}

#[test]
fn forged_exports_and_kubectl_archives_are_named() {
    for path in [
        "hauler.yaml",
        "rancher-images.txt",
        "registries.yaml",
        "zarf.yaml",
    ] {
        let path = format!("exports/{path}");
        let expected = format!("{path} does not follow from the images and charts");
        forged(append(&path, b"x"), &expected);
    }
    let manifest = "krew/multus.yaml";
    forged(
        append(manifest, b"x"),
        "krew/multus.yaml does not follow from the archives",
    );
    forged(
        |tree| tree.add("krew/kubectl-multus-v1-linux-s390x.tar.gz", ""),
        "is not part of a release",
    );
    let plugin = "bin/windows-amd64/kubectl-multus.exe";
    forged(
        |tree| tree.add_program(plugin, b"MZ".to_vec()),
        "bin/windows-amd64/kubectl-multus.exe: no 64-bit program for Windows",
    );
    forged(
        append(plugin, b"x"),
        "sbom/windows-amd64/kubectl-multus.exe: it is about another file than the one of this release",
    );
    forged(
        |tree| drop(tree.0.remove(plugin)),
        "the release has no such program, image or archive",
    );
    forged(
        |tree| tree.0.retain(|path, _| !path.starts_with("sbom/windows")),
        "sbom/windows-amd64/kubectl-multus.exe.cdx.json is missing",
    );
    // The program of another architecture, in an archive that is sound in itself.
    let archive = |arch: &str| {
        let version = env!("CARGO_PKG_VERSION");
        format!("krew/kubectl-multus-v{version}-linux-{arch}.tar.gz")
    };
    forged(
        |tree| {
            let other = tree.get(&archive("amd64")).unwrap().to_vec();
            tree.add(archive("arm"), other);
        },
        "its kubectl-multus is not that of the release",
    );
}

/// Returns the paths in an export that end in one of these.
fn paths_in(text: &str, endings: &[&str]) -> Vec<String> {
    let words = text.split_whitespace();
    let paths =
        words.filter(|word| word.contains('/') && endings.iter().any(|one| word.ends_with(one)));
    paths.map(str::to_owned).collect()
}

#[test]
fn exports_name_files_of_the_release() {
    let tree = release();
    let text = |path: &str| String::from_utf8(tree.get(path).unwrap().to_vec()).unwrap();
    let hauler = text("exports/hauler.yaml");
    let mut named = paths_in(&hauler, &[".tar", ".txt"]);
    let lines: Vec<_> = hauler.lines().map(str::trim).collect();
    let charts = lines.windows(2).filter_map(|pair| {
        let name = pair[0].strip_prefix("- name: ")?;
        Some(format!("{}/{name}", pair[1].strip_prefix("repoURL: ")?))
    });
    named.extend(charts);
    assert_eq!(named.len(), 2 * ARCHES.len() + 6, "{named:?}");
    let zarf = text("exports/zarf.yaml").replace("###ZARF_PKG_ARCH###", "amd64");
    let paths = paths_in(&zarf, &[".tgz", ".tar", ".gz"]);
    assert_eq!(paths.len(), 6 + 3, "{paths:?}");
    named.extend(paths.iter().map(|path| path.replacen("../", "", 1)));
    for path in named {
        assert!(tree.get(&path).is_some(), "the release has no {path}");
    }
}

#[test]
fn directory_that_does_not_exist_is_named_as_such() {
    let error = dir(Path::new("/nosuch"), &Trust::default(), |_| {
        Standard::Description
    })
    .unwrap_err();
    let error = error.to_string();
    let expected = "/nosuch does not exist: name the directory of a release";
    assert_eq!(error, expected);
}

#[test]
fn changes_without_new_checksums_are_named() {
    let change = |change: &dyn Fn(&mut Tree), expected: &str| {
        let mut tree = release();
        change(&mut tree);
        refused(&tree, expected);
    };
    let shim = "bin/arm/multus-shim";
    change(
        &|tree| flip(shim)(tree),
        "bin/arm/multus-shim: its sha256 is",
    );
    change(
        &|tree| drop(tree.0.remove(shim)),
        "bin/arm/multus-shim is missing",
    );
    change(&|tree| tree.add("x", ""), "x is not in SHA256SUMS");
    change(
        &|tree| append(description::SUMS, b"x")(tree),
        "SHA256SUMS is damaged",
    );
}

#[test]
fn forged_programs_and_layers_are_named() {
    forged(
        flip("bin/amd64/multus-daemon"),
        "/usr/src/multus-cni/bin/multus-daemon in its layer is not bin/amd64/multus-daemon",
    );
    forged(
        |tree| tree.add_program("bin/arm/multus-distro", b"#!/bin/sh".to_vec()),
        "bin/arm/multus-distro: no ELF file for arm",
    );
    forged(
        |tree| {
            let other = tree.get("bin/amd64/multus-distro").unwrap().to_vec();
            tree.add_program("bin/arm/multus-distro", other);
        },
        "bin/arm/multus-distro",
    );
    forged(
        |tree| {
            let blob = tree.0.keys().find(|path| path.contains("blobs/sha256"));
            let blob = blob.unwrap().clone();
            flip(&blob)(tree);
        },
        "has the digest",
    );
    forged(|tree| tree.add("oci/extra", ""), "does not belong");
    // A complete layout of other programs, sound in itself.
    forged(
        |tree| {
            tree.0.retain(|path, _| !path.starts_with("oci/"));
            let other = ARCHES.map(|arch| (arch, programs(arch, b"evil"))).into();
            tree.extend_below("oci/", layout(&other).files().into_iter().collect());
        },
        "in its layer is not bin/amd64/multus-cni-plugins",
    );
}

#[test]
fn forged_archives_are_named() {
    let changed = |change: fn(&mut Vec<u8>), expected: &str| {
        forged(
            |tree| change(&mut tree.0.get_mut(ARCHIVE).unwrap().bytes),
            &format!("{ARCHIVE}: {expected}"),
        );
    };
    changed(|tar| tar.truncate(tar.len() / 2), "damaged tar archive");
    changed(
        // The first byte of the marker file's content.
        |tar| tar[512] ^= 1,
        "entry oci-layout is not what oci/ holds",
    );
    changed(
        |tar| tar.extend_from_slice(&[0; 512]),
        "it has bytes outside of its entries",
    );
    changed(|tar| tar.truncate(5000), "damaged tar archive");
    let operators = "airgap/multus-airgap-arm";
    forged(
        flip(operators),
        &format!("{operators} does not follow from bin/arm/multus-airgap"),
    );
    forged(
        |tree| drop(tree.0.remove(operators)),
        &format!("{operators} is missing"),
    );
    let list = "airgap/multus-images.linux-arm.txt";
    forged(append(list, b"evil\n"), list);
    forged(
        append("airgap/multus-images.txt", b"evil\n"),
        "does not follow from oci/",
    );
    forged(
        append("airgap/sha256sum-arm.txt", b"x"),
        "airgap/sha256sum-arm.txt does not follow",
    );
    forged(
        |tree| drop(tree.0.remove("airgap/sha256sum-arm.txt")),
        "airgap/sha256sum-arm.txt is missing",
    );
}

#[test]
fn release_must_have_exactly_the_image_of_its_charts() {
    let version = env!("CARGO_PKG_VERSION");
    let own = format!("docker.io/multusrs/multus:v{version}");
    let named = |names: &[&str]| {
        if names.is_empty() {
            return Layout::default();
        }
        let mut layout = layout(&ARCHES.map(|arch| (arch, programs(arch, b""))).into());
        let image = layout.images.remove(0);
        let images = names.iter().map(|name| image.clone().named(name));
        layout.images.extend(images);
        layout
    };
    for (names, expected) in [
        (
            &["docker.io/multusrs/other:v1"][..],
            format!("oci has docker.io/multusrs/other:v1, the image of this release is {own}"),
        ),
        (
            &["docker.io/multusrs/multus:v5.0.00"],
            format!("the image of this release is {own}"),
        ),
        (
            &[own.as_str(), "docker.io/x/y:1"],
            format!("oci has docker.io/x/y:1, the image of this release is {own}"),
        ),
        (&[], format!("oci has no {own}")),
    ] {
        forged(
            |tree| {
                tree.0.retain(|path, _| !path.starts_with("oci/"));
                tree.extend_below("oci/", named(names).files().into_iter().collect());
            },
            &expected,
        );
    }
    for list in [
        "airgap/k3s/image-list-multus.txt",
        "airgap/multus-images-digests.txt",
        "airgap/multus-images-digests.linux-arm.txt",
        "airgap/rke2/rke2-images-multus.linux-arm.txt",
    ] {
        forged(append(list, b"docker.io/x/y:1\n"), list);
    }
    let page = "man/multus-distro.1";
    forged(append(page, b"evil"), &format!("{page} does not follow"));
}

#[test]
fn forged_descriptions_are_named() {
    forged(
        |tree| tree.add("bin/notes", ""),
        "bin/notes is not part of a release",
    );
    let edited = |edit: fn(&mut Release), expected: &str| {
        forged(
            |tree| {
                let mut release = Release::parse(tree.get(description::FILE).unwrap()).unwrap();
                edit(&mut release);
                tree.add(description::FILE, release.to_bytes().unwrap());
            },
            expected,
        );
    };
    edited(
        |release| release.images[0].platforms[1].layers[0].size += 1,
        "its digests of images are not those of oci/",
    );
    edited(
        |release| drop(release.architectures.pop()),
        "its platforms are not the architectures of the release",
    );
    edited(
        |release| release.architectures.clear(),
        "its architectures are damaged",
    );
    edited(
        |release| release.budgets[0].size = 1,
        "its budgets or files",
    );
    edited(
        |release| drop(release.charts.pop()),
        "its digests of charts are not those of charts/",
    );
    edited(|release| release.schema = 3, "schema 3 is not 2");
}

#[test]
fn forged_charts_are_named() {
    let version = env!("CARGO_PKG_VERSION");
    let main = format!("assets/rke2-multus/rke2-multus-{version}.tgz");
    let chart = format!("charts/{main}");
    // Another chart, packed in the same way, in which a value differs.
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
            let mut windows = tar.windows(8);
            let at = windows.rposition(|part| part == b"\"arm64\",").unwrap();
            tar[at + 1] = b'x';
            tree.add(&chart, gzip::compress(&tar));
        },
        "it selects nodes of amd64, xrm64, arm, the images are made for",
    );
    forged(
        |tree| tree.add(&chart, other(tree)),
        "charts/index.yaml does not follow from the charts",
    );
    forged(
        append(&chart, b"x"),
        "1 byte after the end of the gzip stream",
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
        &format!("manifests/rke2/multus.yaml does not have {chart}"),
    );
    forged(
        |tree| drop(tree.0.remove(&chart)),
        &format!("{chart} is missing"),
    );
    let embedded = format!("bindata/embed/static/charts/k3s-multus-{version}.tgz");
    forged(flip(&embedded), &format!("{embedded} does not follow"));
    let go = "bindata/go/static/zz_generated_bindata.go";
    forged(append(go, b"// evil\n"), &format!("{go} does not follow"));
    let empty = "bindata/go/deploy/no_stage.go";
    forged(
        append(empty, b"// evil\n"),
        &format!("{empty} does not follow"),
    );
    forged(
        |tree| {
            let evil = vec![(format!("charts/k3s-multus-{version}.tgz"), b"evil".to_vec())];
            let source = chart::bindata::go("static", Some("!no_stage"), &evil);
            tree.add(go, source);
        },
        &format!("its asset charts/k3s-multus-{version}.tgz is not the packed one"),
    );
    forged(
        append("manifests/k3s/multus.yaml", b"# evil\n"),
        "does not follow from charts/ and manifests/",
    );
    forged(
        append("manifests/kubernetes/multus.yaml", b"# evil\n"),
        "manifests/kubernetes/multus.yaml does not follow from chart/rendered",
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

#[test]
fn forged_archives_of_plugins_are_named() {
    use api::plugins::PROGRAM;
    use archive::{
        gzip,
        tar::{self, Entry},
    };
    let path = format!(
        "plugins/cni-plugins-linux-arm-v{}.tgz",
        env!("CARGO_PKG_VERSION")
    );
    let other = |entries: &[Entry]| {
        let bytes = gzip::compress(&tar::write(entries).unwrap());
        let path = path.clone();
        move |tree: &mut Tree| tree.add(path, bytes)
    };
    let release = release();
    let program = release.get(&format!("bin/arm/{PROGRAM}")).unwrap();
    let good = Entry::file(PROGRAM, 0o755, program);
    let licence = |name: &str| Entry::file(name, 0o644, release.get(name).unwrap());
    let licences = [licence("LICENSE"), licence("THIRD-PARTY.txt")];
    forged(other(std::slice::from_ref(&good)), "it has no LICENSE");
    forged(
        other(&[good.clone(), licences[0].clone()]),
        "it has no THIRD-PARTY.txt",
    );
    forged(
        other(&[good.clone(), Entry::file("LICENSE", 0o644, "other")]),
        "its LICENSE is not that of the release",
    );
    forged(
        other(&[Entry::file(PROGRAM, 0o755, "other")]),
        "its multus-cni-plugins is not that of the release",
    );
    forged(
        other(&[Entry::file(PROGRAM, 0o644, program)]),
        "the mode of its multus-cni-plugins is 644",
    );
    forged(other(&licences), "it has no multus-cni-plugins");
    forged(
        other(&[good.clone(), Entry::link("macvlan", "evil")]),
        "macvlan does not belong there",
    );
    forged(
        other(&[&licences[..], &[good, Entry::link("macvlan", PROGRAM)]].concat()),
        "has the plugins macvlan, this checkout has",
    );
    forged(
        |tree| {
            tree.0.remove(&path);
        },
        "is missing",
    );
}
