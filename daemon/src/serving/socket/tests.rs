//! The public name passes between daemons, and deleted names are restored.

use std::os::unix::fs::PermissionsExt as _;

use rustix::fs::{CWD, FileType};

use super::*;

const DIR: &str = "/run/multus";

struct Fixture {
    dir: tempfile::TempDir,
    root: Arc<Root>,
}

impl Fixture {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let root = Arc::new(Root::open(dir.path()).unwrap());
        Self { dir, root }
    }

    fn bind(&self, id: &str) -> Socket {
        Socket::bind(Arc::clone(&self.root), Path::new(DIR), id).unwrap()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join("run/multus").join(name)
    }

    fn names(&self) -> Vec<String> {
        self.root.list(DIR).unwrap()
    }
}

fn publish(socket: &mut Socket) {
    socket.publish();
    socket.restore_names().unwrap();
}

/// Returns whether a connection to the public name arrives at this socket.
async fn is_reached(fixture: &Fixture, socket: &Socket) -> bool {
    let stream = UnixStream::connect(fixture.path(api::SOCKET_NAME)).await;
    stream.is_ok() && socket.queued().is_some()
}

#[tokio::test]
async fn public_name_passes_to_the_next_daemon_and_back() {
    let fixture = Fixture::new();
    let mut old = fixture.bind("old");
    publish(&mut old);
    let mode = std::fs::metadata(fixture.path(api::SOCKET_NAME))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
    assert!(is_reached(&fixture, &old).await);
    let mut new = fixture.bind("new");
    assert!(
        is_reached(&fixture, &old).await,
        "an unpublished socket takes no name"
    );
    publish(&mut new);
    assert!(is_reached(&fixture, &new).await);
    assert_eq!(
        (old.owner(), new.owner()),
        (SocketOwner::OtherDaemon, SocketOwner::ThisDaemon)
    );
    old.restore_names().unwrap();
    assert!(
        is_reached(&fixture, &new).await,
        "the old daemon does not take it back"
    );
    old.withdraw().unwrap();
    assert!(is_reached(&fixture, &new).await);
    drop(new);
    assert_eq!(fixture.names(), ["daemon-old.sock"]);
    publish(&mut old);
    assert!(is_reached(&fixture, &old).await);
    drop(old);
    assert!(fixture.names().is_empty());
}

#[tokio::test]
async fn connection_that_arrived_just_now_is_queued() {
    let fixture = Fixture::new();
    let mut socket = fixture.bind("a");
    publish(&mut socket);
    let connect = || std::os::unix::net::UnixStream::connect(fixture.path(api::SOCKET_NAME));
    let _clients = [connect().unwrap(), connect().unwrap()];
    assert!(socket.queued().is_some());
    assert!(socket.queued().is_some());
    assert!(socket.queued().is_none());
}

#[tokio::test]
async fn deleted_names_are_restored() {
    let fixture = Fixture::new();
    let mut socket = fixture.bind("a");
    socket.restore_names().unwrap();
    assert_eq!(fixture.names(), ["daemon-a.sock"], "it was not published");
    publish(&mut socket);
    publish(&mut socket);
    assert_eq!(fixture.names(), ["daemon-a.sock", "multus.sock"]);
    for deleted in ["multus.sock", "daemon-a.sock", ""] {
        let watch = socket.watch().unwrap();
        if deleted.is_empty() {
            std::fs::remove_dir_all(fixture.path("")).unwrap();
        } else {
            std::fs::remove_file(fixture.path(deleted)).unwrap();
        }
        watch.changed().await;
        socket.restore_names().unwrap();
        socket.restore_names().unwrap();
        assert_eq!(
            fixture.names(),
            ["daemon-a.sock", "multus.sock"],
            "{deleted}"
        );
        assert!(is_reached(&fixture, &socket).await, "{deleted}");
    }
}

#[tokio::test]
async fn other_files_are_kept_and_only_dead_sockets_swept() {
    let fixture = Fixture::new();
    let mut socket = fixture.bind("a");
    std::fs::write(fixture.path(api::SOCKET_NAME), "a file").unwrap();
    let error = {
        socket.publish();
        socket.restore_names().unwrap_err().to_string()
    };
    assert!(
        error.contains("/run/multus/multus.sock is not a socket"),
        "{error}"
    );
    assert!(!is_served(&fixture.root, Path::new(DIR)));
    std::fs::remove_file(fixture.path(api::SOCKET_NAME)).unwrap();
    let pipe = fixture.path(api::SOCKET_NAME);
    rustix::fs::mknodat(CWD, &pipe, FileType::Fifo, Mode::RWXU, 0).unwrap();
    socket.restore_names().unwrap_err();
    std::fs::remove_file(pipe).unwrap();
    publish(&mut socket);
    assert!(is_served(&fixture.root, Path::new(DIR)));
    drop(std::os::unix::net::UnixListener::bind(fixture.path("daemon-dead.sock")).unwrap());
    std::fs::write(fixture.path("daemon-file.sock"), "a file").unwrap();
    sweep(&fixture.root, Path::new(DIR));
    assert_eq!(
        fixture.names(),
        ["daemon-a.sock", "daemon-file.sock", "multus.sock"]
    );
}

#[tokio::test]
async fn location_file_leads_to_a_socket_in_another_directory() {
    let fixture = Fixture::new();
    let found = |id: &str| location::find(&fixture.root, id);
    assert_eq!(found("a"), Path::new(DIR), "the default");
    let other = Path::new("/var/elsewhere");
    let mut socket = Socket::bind(Arc::clone(&fixture.root), other, "a").unwrap();
    assert_eq!(found("a"), other);
    assert_eq!(found("b"), Path::new(DIR), "each daemon has its own");
    std::fs::remove_dir_all(fixture.path("")).unwrap();
    socket.restore_names().unwrap();
    assert_eq!(found("a"), other, "a deleted file is restored");
    sweep(&fixture.root, Path::new(DIR));
    assert_eq!(found("a"), other, "it is served");
    std::fs::write(fixture.path("daemon-dead.location"), "/var/elsewhere").unwrap();
    sweep(&fixture.root, Path::new(DIR));
    assert_eq!(fixture.names(), ["daemon-a.location"]);
    drop(socket);
    assert!(fixture.names().is_empty());
    // The same pod again, with the default directory.
    std::fs::write(fixture.path("daemon-a.location"), "/var/elsewhere").unwrap();
    let _socket = fixture.bind("a");
    assert_eq!(found("a"), Path::new(DIR));
}
