//! Tests of reading and writing the journal's files.

use super::*;

fn root() -> (tempfile::TempDir, Root) {
    let dir = tempfile::tempdir().unwrap();
    let root = Root::open(dir.path()).unwrap();
    (dir, root)
}

fn request(container: &str) -> api::Request {
    let mut request = api::Request::default();
    for (key, value) in [
        ("CNI_COMMAND", "DEL"),
        ("CNI_CONTAINERID", container),
        ("CNI_ARGS", "K8S_POD_NAMESPACE=shop;K8S_POD_NAME=cart"),
        ("TOKEN", "secret"),
    ] {
        request.env.insert(key.into(), value.into());
    }
    request
}

/// Takes all entries that are due, in order.
fn due(journal: &Journal) -> Vec<(String, Subject)> {
    let now = Instant::now();
    let mut pending = journal.pending();
    let taken = std::iter::from_fn(|| pending.take(now));
    taken
        .map(|(path, subject)| {
            (
                path.file_name().unwrap().to_str().unwrap().to_owned(),
                subject,
            )
        })
        .collect()
}

#[test]
fn reading_finds_container_and_pod_and_sets_broken_entries_aside() {
    let (_dir, root) = root();
    let cni_dir = Path::new("/state");
    let dirs = [cni_dir.to_owned(), PathBuf::from("/none")];
    let journal = Journal::default();
    read(&root, &dirs, &journal).unwrap();
    assert!(!journal.pending().has_untried());
    put(&root, cni_dir, "a.json", &request("c1")).unwrap();
    let pending = journal::dir(cni_dir);
    root.write_atomic(pending.join("b.json"), b"{", 0o600)
        .unwrap();
    root.make_dirs(pending.join("c.json"), 0o700).unwrap();
    for _ in 0..2 {
        read(&root, &dirs, &journal).unwrap();
    }
    let due = due(&journal);
    assert_eq!(due.len(), 2, "{due:?}");
    let (name, subject) = &due[0];
    let pod = subject.pod.as_ref().unwrap();
    assert_eq!(
        (name.as_str(), subject.container.as_str(), pod.name.as_str()),
        ("a.json", "c1", "cart")
    );
    assert_eq!(due[1], ("c.json".to_owned(), Subject::default()));
    assert_eq!(
        root.list(&pending).unwrap(),
        ["a.json", "b.json.broken", "c.json"]
    );
}

#[test]
fn put_keeps_cni_variables_alone() {
    let (_dir, root) = root();
    let cni_dir = Path::new("/state");
    put(&root, cni_dir, "c1.json", &request("c1")).unwrap();
    let entry = journal::dir(cni_dir).join("c1.json");
    let Loaded::Request(loaded) = load(&root, &entry).unwrap() else {
        panic!("the entry was removed");
    };
    assert!(!loaded.env.contains_key("TOKEN"));
    assert_eq!(loaded.env["CNI_CONTAINERID"], "c1");
}

#[tokio::test]
async fn add_waits_for_entries_of_its_own_container_alone() {
    use futures::FutureExt;

    let (_dir, root) = root();
    let cni_dir = PathBuf::from("/state");
    put(&root, &cni_dir, "a.json", &request("c1")).unwrap();
    let journal = Journal::default();
    read(&root, &[cni_dir], &journal).unwrap();
    let other = Subject {
        container: "c2".to_owned(),
        pod: None,
    };
    journal.wait_for(&other).await;
    let own = subject(&request("c2"));
    let mut waiting = Box::pin(journal.wait_for(&own));
    assert!(waiting.as_mut().now_or_never().is_none());
    let (path, _) = journal.pending().take(Instant::now()).unwrap();
    journal.pending().done(&path);
    journal.changed.notify_waiters();
    waiting.await;
    journal.wait_for_first_pass().await;
}
