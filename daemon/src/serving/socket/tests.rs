//! Names that pass from one daemon to the next, and come back.

use rustix::fs::{CWD, FileType};

use super::*;

const DIR: &str = "/run/multus";

struct Place {
    dir: tempfile::TempDir,
    root: Arc<Root>,
}

impl Place {
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
    socket.look_after_names().unwrap();
}

/// Whether a connection to the name that shims know arrives here.
async fn is_found(place: &Place, socket: &Socket) -> bool {
    let stream = UnixStream::connect(place.path(api::SOCKET_NAME)).await;
    stream.is_ok() && socket.queued().is_some()
}

#[tokio::test]
async fn the_name_passes_from_one_to_the_next_and_back() {
    let place = Place::new();
    let mut old = place.bind("old");
    publish(&mut old);
    let mode = std::fs::metadata(place.path(api::SOCKET_NAME))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
    assert!(is_found(&place, &old).await);
    let mut new = place.bind("new");
    assert!(
        is_found(&place, &old).await,
        "who is not ready takes nothing"
    );
    publish(&mut new);
    assert!(is_found(&place, &new).await);
    assert_eq!((old.holder(), new.holder()), (Holder::Another, Holder::Us));
    old.look_after_names().unwrap();
    assert!(is_found(&place, &new).await, "the old one does not fight");
    old.withdraw().unwrap();
    assert!(is_found(&place, &new).await);
    drop(new);
    assert_eq!(place.names(), ["daemon-old.sock"]);
    publish(&mut old);
    assert!(is_found(&place, &old).await);
    drop(old);
    assert!(place.names().is_empty());
}

#[tokio::test]
async fn what_is_removed_comes_back() {
    let place = Place::new();
    let mut socket = place.bind("a");
    socket.look_after_names().unwrap();
    assert_eq!(place.names(), ["daemon-a.sock"], "it was not published");
    publish(&mut socket);
    publish(&mut socket);
    assert_eq!(place.names(), ["daemon-a.sock", "multus.sock"]);
    for gone in ["multus.sock", "daemon-a.sock", ""] {
        let watch = socket.watch().unwrap();
        if gone.is_empty() {
            std::fs::remove_dir_all(place.path("")).unwrap();
        } else {
            std::fs::remove_file(place.path(gone)).unwrap();
        }
        watch.changed().await;
        socket.look_after_names().unwrap();
        socket.look_after_names().unwrap();
        assert_eq!(place.names(), ["daemon-a.sock", "multus.sock"], "{gone}");
        assert!(is_found(&place, &socket).await, "{gone}");
    }
}

#[tokio::test]
async fn only_sockets_are_replaced_and_only_dead_ones_swept() {
    let place = Place::new();
    let mut socket = place.bind("a");
    std::fs::write(place.path(api::SOCKET_NAME), "a file").unwrap();
    let error = {
        socket.publish();
        socket.look_after_names().unwrap_err().to_string()
    };
    assert!(
        error.contains("/run/multus/multus.sock is not a socket"),
        "{error}"
    );
    assert!(!is_served(&place.root, Path::new(DIR)));
    std::fs::remove_file(place.path(api::SOCKET_NAME)).unwrap();
    let pipe = place.path(api::SOCKET_NAME);
    rustix::fs::mknodat(CWD, &pipe, FileType::Fifo, Mode::RWXU, 0).unwrap();
    socket.look_after_names().unwrap_err();
    std::fs::remove_file(pipe).unwrap();
    publish(&mut socket);
    assert!(is_served(&place.root, Path::new(DIR)));
    drop(std::os::unix::net::UnixListener::bind(place.path("daemon-dead.sock")).unwrap());
    std::fs::write(place.path("daemon-file.sock"), "a file").unwrap();
    sweep(&place.root, Path::new(DIR));
    assert_eq!(
        place.names(),
        ["daemon-a.sock", "daemon-file.sock", "multus.sock"]
    );
}

#[tokio::test]
async fn location_leads_to_an_own_socket_that_is_elsewhere() {
    let place = Place::new();
    let found = |id: &str| location::find(&place.root, id);
    assert_eq!(found("a"), Path::new(DIR), "the default");
    let other = Path::new("/var/elsewhere");
    let mut socket = Socket::bind(Arc::clone(&place.root), other, "a").unwrap();
    assert_eq!(found("a"), other);
    assert_eq!(found("b"), Path::new(DIR), "each daemon has its own");
    std::fs::remove_dir_all(place.path("")).unwrap();
    socket.look_after_names().unwrap();
    assert_eq!(found("a"), other, "what was removed comes back");
    sweep(&place.root, Path::new(DIR));
    assert_eq!(found("a"), other, "it is served");
    std::fs::write(place.path("daemon-dead.location"), "/var/elsewhere").unwrap();
    sweep(&place.root, Path::new(DIR));
    assert_eq!(place.names(), ["daemon-a.location"]);
    drop(socket);
    assert!(place.names().is_empty());
    // The same pod again, with the default directory.
    std::fs::write(place.path("daemon-a.location"), "/var/elsewhere").unwrap();
    let _socket = place.bind("a");
    assert_eq!(found("a"), Path::new(DIR));
}
