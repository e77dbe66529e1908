//! Staging on real directories.

use std::{
    fs, io,
    os::{fd::BorrowedFd, unix::fs::PermissionsExt as _},
    sync::Arc,
    time::SystemTime,
};

use node::root::Disk;

use super::{record::RECORD, *};

fn node() -> Root {
    Root::open("/").unwrap()
}

fn stage(dir: &Path, files: &[File]) -> anyhow::Result<Outcome> {
    super::stage(&node(), dir, files)
}

fn plan_unstage(dir: &Path, force: bool, purge: bool) -> anyhow::Result<Vec<UnstageStep>> {
    super::plan_unstage(&node(), dir, force, purge)
}

fn disable(dir: &Path) -> anyhow::Result<Vec<String>> {
    super::disable(&node(), dir)
}

const CHART: &str = "server/static/charts/a.tgz";
const MANIFEST: &str = "server/manifests/multus.yaml";

fn file(path: &str, bytes: &[u8]) -> File {
    File {
        path: path.into(),
        bytes: bytes.into(),
    }
}

fn both() -> [File; 2] {
    [file(CHART, b"1"), file(MANIFEST, b"2")]
}

fn files_below(dir: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut open = vec![dir.to_owned()];
    while let Some(next) = open.pop() {
        for entry in fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
            } else {
                found.push(path.strip_prefix(dir).unwrap().display().to_string());
            }
        }
    }
    found.sort();
    found
}

fn modified(path: &Path) -> SystemTime {
    fs::metadata(path).unwrap().modified().unwrap()
}

fn unstage_all(dir: &Path, force: bool, purge: bool) -> anyhow::Result<Outcome> {
    unstage(&node(), dir, &plan_unstage(dir, force, purge)?)
}

#[test]
fn unstage_leaves_emptied_manifests_until_purge() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir_all(dir.path().join("server/manifests")).unwrap();
    fs::write(dir.path().join("server/manifests/theirs.yaml"), "x").unwrap();
    stage(dir.path(), &both()).unwrap();
    let path = dir.path().join(CHART);
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&path), 0o600);
    assert_eq!(mode(path.parent().unwrap()), 0o700);
    assert_eq!(
        unstage_all(dir.path(), false, false).unwrap().written.len(),
        2
    );
    let text = fs::read(dir.path().join(MANIFEST)).unwrap();
    assert!(manifest::is_removal(&text));
    let left = [RECORD, MANIFEST, "server/manifests/theirs.yaml"];
    assert_eq!(files_below(dir.path()), left);
    assert!(plan_unstage(dir.path(), false, false).unwrap().is_empty());
    assert_eq!(
        unstage_all(dir.path(), false, true).unwrap().written.len(),
        1
    );
    assert_eq!(files_below(dir.path()), ["server/manifests/theirs.yaml"]);
    // On again after off.
    stage(dir.path(), &both()).unwrap();
    unstage_all(dir.path(), false, false).unwrap();
    stage(dir.path(), &both()).unwrap();
    assert_eq!(fs::read(dir.path().join(MANIFEST)).unwrap(), b"2");
}

#[test]
fn plan_touches_nothing() {
    let dir = tempfile::tempdir().unwrap();
    stage(dir.path(), &both()).unwrap();
    let before = modified(&dir.path().join(MANIFEST));
    let plan = plan_unstage(dir.path(), false, false).unwrap();
    let lines: Vec<String> = plan.iter().map(|step| step.describe(dir.path())).collect();
    assert!(lines[0].starts_with("empty ") && lines[0].contains("multus.yaml"));
    assert!(lines[1].starts_with("delete ") && lines[1].ends_with("a.tgz"));
    assert_eq!(modified(&dir.path().join(MANIFEST)), before);
}

#[test]
fn unchanged_files_keep_their_time_and_changed_files_get_another() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(MANIFEST);
    stage(dir.path(), &both()).unwrap();
    let before = modified(&path);
    assert!(stage(dir.path(), &both()).unwrap().written.is_empty());
    assert_eq!(modified(&path), before);
    // The distro compares times; the clock may stand still or be set back.
    let ahead = SystemTime::now() + std::time::Duration::from_hours(1);
    for time in [SystemTime::UNIX_EPOCH, ahead] {
        let open = fs::File::options().write(true).open(&path).unwrap();
        open.set_modified(time).unwrap();
        let seconds = time.duration_since(SystemTime::UNIX_EPOCH).unwrap();
        let new = file(MANIFEST, format!("{seconds:?}").as_bytes());
        stage(dir.path(), &[file(CHART, b"1"), new]).unwrap();
        assert_ne!(modified(&path), time);
    }
}

#[test]
fn equal_modification_times_are_made_different() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(MANIFEST);
    stage(dir.path(), &both()).unwrap();
    let root = node();
    let mut batch = Batch::new(&root, dir.path());
    batch.write(&path, b"3").unwrap();
    let temporary = dir.path().join("server/manifests/.multus.yaml.multus-tmp");
    let open = fs::File::options().write(true).open(&path).unwrap();
    open.set_modified(modified(&temporary)).unwrap();
    let before = modified(&path);
    batch.put().unwrap();
    assert_ne!(modified(&path), before);
}

#[test]
fn new_version_keeps_the_charts_of_the_old_one_until_unstage() {
    let dir = tempfile::tempdir().unwrap();
    let charts = ["a-1.tgz", "a-2.tgz"].map(|name| format!("server/static/charts/{name}"));
    for chart in &charts {
        stage(
            dir.path(),
            &[
                file(chart, chart.as_bytes()),
                file(MANIFEST, chart.as_bytes()),
            ],
        )
        .unwrap();
    }
    let all = [RECORD, MANIFEST, &charts[0], &charts[1]];
    assert_eq!(files_below(dir.path()), all);
    unstage_all(dir.path(), false, true).unwrap();
    assert_eq!(files_below(dir.path()), [""; 0]);
}

#[test]
fn manifest_of_another_distro_is_emptied() {
    let dir = tempfile::tempdir().unwrap();
    let other = "server/manifests/multus-crd.yaml";
    stage(dir.path(), &[file(other, b"1"), file(MANIFEST, b"2")]).unwrap();
    stage(dir.path(), &[file(MANIFEST, b"3")]).unwrap();
    assert!(manifest::is_removal(
        &fs::read(dir.path().join(other)).unwrap()
    ));
    assert_eq!(disable(dir.path()).unwrap(), ["multus", "multus-crd"]);
}

#[test]
fn edited_file_is_not_lost_silently() {
    let dir = tempfile::tempdir().unwrap();
    stage(dir.path(), &both()).unwrap();
    let path = dir.path().join(MANIFEST);
    fs::write(&path, "edited").unwrap();
    let error = unstage_all(dir.path(), false, false)
        .unwrap_err()
        .to_string();
    assert!(error.contains("--force"), "{error}");
    assert_eq!(fs::read(&path).unwrap(), b"edited");
    assert_eq!(
        unstage_all(dir.path(), true, false).unwrap().written.len(),
        2
    );
    stage(dir.path(), &both()).unwrap();
    fs::write(&path, "edited").unwrap();
    let outcome = stage(dir.path(), &both()).unwrap();
    assert!(outcome.notes[0].contains("HelmChartConfig"), "{outcome:?}");
    assert_eq!(fs::read(&path).unwrap(), b"2");
}

#[test]
fn foreign_file_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(MANIFEST);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, "theirs").unwrap();
    let error = stage(dir.path(), &both()).unwrap_err().to_string();
    assert!(
        error.contains("kubectl label --overwrite --filename"),
        "{error}"
    );
    assert_eq!(files_below(dir.path()), [MANIFEST]);
}

#[test]
fn conflicting_files_are_noted() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir_all(dir.path().join("server/manifests/own")).unwrap();
    for name in ["multus.yaml.skip", "own/multus.yml"] {
        fs::write(dir.path().join(MANIFESTS).join(name), "").unwrap();
    }
    let notes = stage(dir.path(), &both()).unwrap().notes;
    assert!(notes[0].contains("multus.yaml.skip keeps"), "{notes:?}");
    assert!(notes[1].contains("own/multus.yml becomes"), "{notes:?}");
    let notes = unstage_all(dir.path(), false, false).unwrap().notes;
    assert!(
        notes[0].contains("or what the distro installed stays"),
        "{notes:?}"
    );
}

#[test]
fn start_without_multus_leaves_the_manifest_for_the_distro() {
    let dir = tempfile::tempdir().unwrap();
    assert!(disable(dir.path()).unwrap().is_empty());
    stage(dir.path(), &both()).unwrap();
    assert_eq!(disable(dir.path()).unwrap(), ["multus"]);
    assert_eq!(files_below(dir.path()), [RECORD, MANIFEST]);
    // The distro deletes it.
    fs::remove_file(dir.path().join(MANIFEST)).unwrap();
    assert!(disable(dir.path()).unwrap().is_empty());
    assert_eq!(files_below(dir.path()), [""; 0]);
}

#[test]
fn failure_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let blocked = dir.path().join(MANIFEST);
    fs::create_dir_all(&blocked).unwrap();
    stage(dir.path(), &both()).unwrap_err();
    assert_eq!(files_below(dir.path()), [""; 0]);
    assert!(!dir.path().join("server/static").exists());
}

/// A disk that is full, as a file system with delayed allocation notices only when data has to reach it.
#[derive(Debug)]
struct FullDisk;

impl Disk for FullDisk {
    fn sync_data(&self, _: BorrowedFd<'_>) -> io::Result<()> {
        Err(io::ErrorKind::StorageFull.into())
    }

    fn sync_dir(&self, _: BorrowedFd<'_>) -> io::Result<()> {
        Ok(())
    }

    fn syncs_name_of_new_file(&self, _: BorrowedFd<'_>) -> bool {
        false
    }
}

#[test]
fn nothing_is_renamed_before_all_of_it_is_on_disk() {
    let dir = tempfile::tempdir().unwrap();
    stage(dir.path(), &both()).unwrap();
    let root = node().with_disk(Arc::new(FullDisk));
    let mut batch = Batch::new(&root, dir.path());
    for path in [CHART, MANIFEST] {
        batch.write(&dir.path().join(path), b"3").unwrap();
    }
    assert_eq!(batch.put().unwrap_err().kind(), io::ErrorKind::StorageFull);
    assert_eq!(fs::read(dir.path().join(CHART)).unwrap(), b"1");
    assert_eq!(fs::read(dir.path().join(MANIFEST)).unwrap(), b"2");
    assert_eq!(files_below(dir.path()), [RECORD, MANIFEST, CHART]);
}

#[test]
fn servers_of_one_cluster_stage_the_same_bytes() {
    let dirs = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let server = crate::plan::Server {
        registry: "r.example",
        runs_agent: true,
    };
    let files = crate::plan::files(crate::plan::Distro::K3s, server).unwrap();
    let contents = dirs.each_ref().map(|dir| {
        stage(dir.path(), &files).unwrap();
        let read = |path: String| (fs::read(dir.path().join(&path)).unwrap(), path);
        files_below(dir.path())
            .into_iter()
            .map(read)
            .collect::<Vec<_>>()
    });
    assert_eq!(contents[0], contents[1]);
}

#[test]
fn record_with_a_path_outside_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir_all(dir.path().join("server")).unwrap();
    let text = r#"{"schema":1,"files":[{"path":"server/../../etc/passwd","check":"0"}]}"#;
    fs::write(dir.path().join(RECORD), text).unwrap();
    let error = unstage_all(dir.path(), true, true).unwrap_err().to_string();
    assert!(error.contains("outside"), "{error}");
}
