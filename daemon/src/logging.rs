//! Where the daemon's own log goes: to stderr, to a file of the node that is rotated, to both, or nowhere.

use std::{
    io,
    os::fd::OwnedFd,
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
    sync::{Arc, Mutex, PoisonError},
};

use anyhow::Context as _;
use file_rotate::{
    ContentLimit, FileRotate,
    compression::Compression,
    suffix::{AppendTimestamp, DateFrom, FileLimit, SuffixScheme, TimestampSuffix},
};
use node::root::{Root, proc_path};
use plan::daemon_config::logging::{Logging, Rotation};
use tracing::{Level, level_filters::LevelFilter};
use tracing_subscriber::{
    Layer, Registry, filter::Targets, fmt, fmt::MakeWriter, layer::SubscriberExt as _,
    util::SubscriberInitExt as _,
};

/// Permissions of directories that are made for the file.
const DIR_MODE: u32 = 0o755;
/// Of rotated files, the time is in the name, and so is the order.
const TIME: &str = "%Y-%m-%dT%H-%M-%S";

/// Begins logging for the rest of the process, as JSON or as text; the file is one below `root`.
pub fn init(settings: &Logging, root: &Root, as_json: bool) -> anyhow::Result<()> {
    let file = settings.file.as_deref().map(|path| {
        RotatedFile::open(root, path, settings.rotation)
            .with_context(|| format!("cannot log to {}: correct logFile", path.display()))
    });
    let stderr = settings
        .to_stderr
        .then_some(io::stderr as fn() -> io::Stderr);
    let layers = [
        file.transpose()?.map(|file| layer(file, as_json)),
        stderr.map(|stderr| layer(stderr, as_json)),
    ];
    let layers: Vec<_> = layers.into_iter().flatten().collect();
    tracing_subscriber::registry()
        .with(layers)
        .with(filter(&settings.level))
        .init();
    Ok(())
}

/// What is logged at this level: `panic` is what ends the process alone, and that is not logged this way.
fn filter(level: &str) -> Targets {
    let level = match level {
        "debug" => Level::DEBUG,
        "error" => Level::ERROR,
        "panic" => return Targets::new().with_default(LevelFilter::OFF),
        _ => Level::INFO,
    };
    // Libraries talk of their own inner life below that.
    Targets::new()
        .with_target("daemon", level)
        .with_target("node", level)
        // What it gets back is said where it was asked for, with more of the reason.
        .with_target("kube_client", LevelFilter::OFF)
        .with_default(level.min(Level::WARN))
}

fn layer<W>(writer: W, as_json: bool) -> Box<dyn Layer<Registry> + Send + Sync>
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let layer = fmt::layer().with_writer(writer).with_ansi(false);
    if as_json {
        layer.json().boxed()
    } else {
        layer.boxed()
    }
}

/// Logs to stderr alone, as commands do that have no file.
pub fn to_stderr(level: &str, as_json: bool) {
    let layer = layer(io::stderr as fn() -> io::Stderr, as_json);
    tracing_subscriber::registry()
        .with(layer)
        .with(filter(level))
        .init();
}

/// A file that is begun anew at a size.
#[derive(Clone)]
struct RotatedFile(Arc<Mutex<Open>>);

struct Open {
    file: FileRotate<Named>,
    #[expect(dead_code, reason = "the file's path leads through it")]
    dir: OwnedFd,
}

impl RotatedFile {
    fn open(root: &Root, path: &Path, rotation: Rotation) -> anyhow::Result<Self> {
        let name = path.file_name().context("it names no file")?;
        let parent = path.parent().unwrap_or(Path::new("/"));
        root.make_dirs(parent, DIR_MODE)?;
        let dir = root.open_dir(parent)?;
        let path = proc_path(&dir).join(name);
        let mut options = std::fs::OpenOptions::new();
        options.read(true).create(true).append(true);
        // The library says nothing of a file that it cannot open.
        options.open(&path)?;
        let size = usize::try_from(rotation.max_size)?.saturating_mul(1 << 20);
        let compression = if rotation.compress {
            Compression::OnRotate(0)
        } else {
            Compression::None
        };
        let file = FileRotate::new(
            path,
            Named::new(rotation),
            ContentLimit::BytesSurpassed(size),
            compression,
            Some(options),
        );
        Ok(Self(Arc::new(Mutex::new(Open { file, dir }))))
    }
}

impl<'a> MakeWriter<'a> for RotatedFile {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

impl RotatedFile {
    /// The library asserts what others may break, as by removing the file meanwhile; no pod may fail for a line of the log.
    fn guarded<T>(
        &self,
        act: impl FnOnce(&mut FileRotate<Named>) -> io::Result<T>,
    ) -> io::Result<T> {
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        catch_unwind(AssertUnwindSafe(|| act(&mut open.file)))
            .unwrap_or_else(|_| Err(io::Error::other("the log cannot be rotated")))
    }
}

impl io::Write for RotatedFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.guarded(|file| file.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.guarded(io::Write::flush)
    }
}

/// Old files have the time of their rotation in their names, and are limited in number and in age; the library knows one of both.
struct Named {
    names: AppendTimestamp,
    /// Removes by age.
    aged: Option<AppendTimestamp>,
    /// How many are kept, where that is limited.
    most: Option<usize>,
}

impl Named {
    fn new(rotation: Rotation) -> Self {
        let with = |limit| AppendTimestamp::with_format(TIME, limit, DateFrom::Now);
        let age = chrono::Duration::days(rotation.max_age.into());
        Self {
            names: with(FileLimit::Unlimited),
            aged: (rotation.max_age > 0).then(|| with(FileLimit::Age(age))),
            most: usize::try_from(rotation.max_backups)
                .ok()
                .filter(|most| *most > 0),
        }
    }
}

impl SuffixScheme for Named {
    type Repr = TimestampSuffix;

    fn rotate_file(
        &mut self,
        path: &Path,
        newest: Option<&TimestampSuffix>,
        suffix: &Option<TimestampSuffix>,
    ) -> io::Result<TimestampSuffix> {
        self.names.rotate_file(path, newest, suffix)
    }

    fn parse(&self, suffix: &str) -> Option<TimestampSuffix> {
        self.names.parse(suffix)
    }

    fn too_old(&self, suffix: &TimestampSuffix, number: usize) -> bool {
        self.most.is_some_and(|most| number >= most)
            || self
                .aged
                .as_ref()
                .is_some_and(|aged| aged.too_old(suffix, number))
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn nothing_is_logged_at_level_panic() {
        let enabled = |level: &str, at: Level| filter(level).would_enable("daemon", &at);
        assert!(!enabled("panic", Level::ERROR));
        assert!(enabled("error", Level::ERROR) && !enabled("error", Level::WARN));
        assert!(enabled("", Level::INFO) && !enabled("verbose", Level::DEBUG));
        assert!(enabled("debug", Level::DEBUG));
    }

    #[test]
    fn a_file_is_rotated_compressed_and_limited_in_number() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::open(dir.path()).unwrap();
        let rotation = Rotation {
            max_size: 1,
            max_age: 1,
            max_backups: 2,
            compress: true,
        };
        let mut file = RotatedFile::open(&root, Path::new("/var/log/m.log"), rotation).unwrap();
        let line = vec![b'x'; 1 << 19];
        for _ in 0..20 {
            file.write_all(&line).unwrap();
        }
        let names = root.list("/var/log").unwrap();
        assert_eq!(names.len(), 3, "{names:?}");
        let is_compressed = |name: &&String| Path::new(name).extension() == Some("gz".as_ref());
        assert_eq!(names.iter().filter(is_compressed).count(), 2);
        assert!(names.contains(&"m.log".to_owned()), "{names:?}");
    }

    #[test]
    fn what_others_do_to_the_file_fails_nobody() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::open(dir.path()).unwrap();
        let rotation = Rotation {
            max_size: 1,
            ..Rotation::default()
        };
        let mut file = RotatedFile::open(&root, Path::new("/log/m.log"), rotation).unwrap();
        let line = vec![b'x'; 1 << 20];
        file.write_all(&line).unwrap();
        std::fs::remove_dir_all(dir.path().join("log")).unwrap();
        for _ in 0..4 {
            // It may fail, but it does not panic.
            let _ = file.write(&line);
        }
        let blocked = RotatedFile::open(&root, Path::new("/log/m.log/x"), rotation);
        let made = root.write_atomic("/file", b"", 0o600).is_ok();
        let below = RotatedFile::open(&root, Path::new("/file/m.log"), rotation);
        assert!(made && below.is_err(), "{:?}", blocked.err());
    }
}
