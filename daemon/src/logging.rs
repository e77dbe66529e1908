//! The outputs of the daemon's own log: stderr, a rotated file on the node, both, or none.

use std::{
    io,
    os::{fd::OwnedFd, unix::fs::OpenOptionsExt as _},
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
use rustix::fs::OFlags;
use tracing::{Level, level_filters::LevelFilter};
use tracing_subscriber::{
    Layer, Registry, filter::Targets, fmt, fmt::MakeWriter, layer::SubscriberExt as _,
    util::SubscriberInitExt as _,
};

/// Permissions of directories that are created for the file, and of the file.
const DIR_MODE: u32 = 0o755;
const FILE_MODE: u32 = 0o600;
/// The suffix of rotated files: the time of rotation, which also sorts them.
const TIME: &str = "%Y-%m-%dT%H-%M-%S";

/// Starts logging for the rest of the process, as JSON or as text. The file is below `root`.
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

/// Returns the filter of a level. `panic` allows only messages that end the process, and those are not logged this way.
fn filter(level: &str) -> Targets {
    let level = match level {
        "debug" => Level::DEBUG,
        "error" => Level::ERROR,
        "panic" => return Targets::new().with_default(LevelFilter::OFF),
        _ => Level::INFO,
    };
    // Below that level, libraries log internal details.
    Targets::new()
        .with_target("daemon", level)
        .with_target("node", level)
        // The callers log its errors themselves, with more of the reason.
        .with_target("kube_client", LevelFilter::OFF)
        .with_default(level.min(Level::WARN))
}

fn layer<W>(writer: W, as_json: bool) -> Box<dyn Layer<Registry> + Send + Sync>
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    if as_json {
        let layer = fmt::layer().with_writer(writer).with_ansi(false);
        layer.json().boxed()
    } else {
        let layer = fmt::layer().with_writer(OneLine(writer)).with_ansi(false);
        layer.boxed()
    }
}

/// Writes each event as one line, whatever its fields contain: a line break in a pod's annotation must not forge another event. JSON has
/// escapes of its own.
struct OneLine<W>(W);

impl<'a, W: MakeWriter<'a>> MakeWriter<'a> for OneLine<W> {
    type Writer = OneLine<W::Writer>;

    fn make_writer(&'a self) -> Self::Writer {
        OneLine(self.0.make_writer())
    }
}

impl<W: io::Write> io::Write for OneLine<W> {
    /// Gets a complete event, as the formatter writes it.
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        let line = event.strip_suffix(b"\n").unwrap_or(event);
        let text = String::from_utf8_lossy(line);
        if text.contains(char::is_control) {
            let mut escaped = String::with_capacity(text.len() + 1);
            for character in text.chars() {
                if character.is_control() {
                    escaped.extend(character.escape_default());
                } else {
                    escaped.push(character);
                }
            }
            escaped.push('\n');
            self.0.write_all(escaped.as_bytes())?;
        } else {
            self.0.write_all(event)?;
        }
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// Starts logging only to stderr, for commands without a daemon's file.
pub fn to_stderr(level: &str, as_json: bool) {
    let layer = layer(io::stderr as fn() -> io::Stderr, as_json);
    tracing_subscriber::registry()
        .with(layer)
        .with(filter(level))
        .init();
}

/// A log file that is rotated.
#[derive(Clone)]
struct RotatedFile(Arc<Mutex<Open>>);

struct Open {
    file: FileRotate<Named>,
    #[expect(dead_code, reason = "the file's path goes through this descriptor")]
    dir: OwnedFd,
}

impl RotatedFile {
    fn open(root: &Root, path: &Path, rotation: Rotation) -> anyhow::Result<Self> {
        let name = path.file_name().context("the path has no file name")?;
        let parent = path.parent().unwrap_or(Path::new("/"));
        root.make_dirs(parent, DIR_MODE)?;
        let dir = root.open_dir(parent)?;
        let path = proc_path(&dir).join(name);
        let mut options = std::fs::OpenOptions::new();
        // Others may write to the directory, and a link of theirs must not lead us to another file.
        let no_link = OFlags::NOFOLLOW.bits().cast_signed();
        options.read(true).create(true).append(true);
        options.custom_flags(no_link);
        // As the shim creates it: the log names pods and what plugins say of them.
        options.mode(FILE_MODE);
        // The library does not report a file that it cannot open.
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
    /// Catches panics of the library. Its assertions fail when another program removes the file, for example, and no pod may fail because
    /// of a log line.
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

/// Names old files by the time of their rotation, and limits their number and their age. The library itself has either limit, not both.
struct Named {
    names: AppendTimestamp,
    /// The limit of age, if any.
    by_age: Option<AppendTimestamp>,
    /// The limit of their number, if any.
    max_files: Option<usize>,
}

impl Named {
    fn new(rotation: Rotation) -> Self {
        let with = |limit| AppendTimestamp::with_format(TIME, limit, DateFrom::Now);
        let age = chrono::Duration::days(rotation.max_age.into());
        Self {
            names: with(FileLimit::Unlimited),
            by_age: (rotation.max_age > 0).then(|| with(FileLimit::Age(age))),
            max_files: usize::try_from(rotation.max_backups)
                .ok()
                .filter(|max| *max > 0),
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
        self.max_files.is_some_and(|max| number >= max)
            || self
                .by_age
                .as_ref()
                .is_some_and(|by_age| by_age.too_old(suffix, number))
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

    #[derive(Clone, Default)]
    struct Memory(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Memory {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn fields_cannot_forge_a_line() {
        let memory = Memory::default();
        let writer = memory.clone();
        let layer = layer(move || writer.clone(), false);
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
            let error = "no luck\n2026-01-01 INFO forged\r\u{1b}[2J";
            tracing::warn!(%error, "attaching failed\nforged, too");
        });
        let text = String::from_utf8(memory.0.lock().unwrap().clone()).unwrap();
        assert_eq!(text.matches('\n').count(), 1, "{text}");
        assert!(
            text.ends_with('\n') && text.contains(r"no luck\n2026-01-01"),
            "{text}"
        );
        assert!(!text.trim_end().contains(char::is_control), "{text}");
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
    fn a_link_at_the_file_is_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::open(dir.path()).unwrap();
        let target = dir.path().join("target");
        std::fs::write(&target, "").unwrap();
        std::os::unix::fs::symlink(&target, dir.path().join("m.log")).unwrap();
        let opened = RotatedFile::open(&root, Path::new("/m.log"), Rotation::default());
        assert!(opened.is_err());
        std::fs::remove_file(dir.path().join("m.log")).unwrap();
        let path = Path::new("/m.log");
        assert!(RotatedFile::open(&root, path, Rotation::default()).is_ok());
    }

    #[test]
    fn other_programs_changes_to_the_file_cause_no_panic() {
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
