//! A reflector: follows the objects of one kind by a list from the API server's cache and then a watch from there on, for ever.
//!
//! No list ever reaches etcd: version 0 means "whatever the cache has", a later one "at least this", and there is no limit, since older
//! releases pass limited lists on to etcd. [`after_list`] and [`after_watch`] decide the next step after each response or error, and the
//! loop takes it.

use std::{fmt::Write as _, io, time::Duration};

use hyper::body::Bytes;
use serde::{Deserialize, de::DeserializeOwned};
use tokio::{
    sync::{Notify, mpsc},
    time::{Instant, sleep},
};
use tracing::{debug, info, warn};

use super::{line_splitter::LineSplitter, retry::random};
use crate::{
    access::{ApiError, ApiErrorKind, ApiRequest, Client},
    backoff::backoff,
};

/// The time limit for the API server to begin its answer, and then for each chunk of a list.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The duration of a watch, up to twice as long, so that not all daemons of a cluster start the next one at the same time.
const WATCH: Duration = Duration::from_mins(5);
/// The API server ends a watch itself. When it has not done so this long after the end, the daemon ends it.
const OVERDUE: Duration = Duration::from_secs(30);
/// The pause after the first failure, doubled with each failure up to the longest pause.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// A watch that lasted this long counts as a success.
const SUCCESS_AFTER: Duration = Duration::from_secs(5);
/// The limit for the text of a list: some hundred times that of a node with 250 pods. It is parsed while it arrives.
const MAX_LIST: usize = 256 << 20;
/// The chunks of a list that wait for the parser.
const CHUNKS: usize = 4;
/// The version that stands for whatever the API server's cache has.
const ANY: &str = "0";

const BAD_REQUEST: u16 = 400;
const NOT_FOUND: u16 = 404;
const GONE: u16 = 410;
const GATEWAY_TIMEOUT: u16 = 504;

/// The objects to follow.
#[derive(Debug, Clone)]
pub(crate) struct Resource {
    /// The name of the kind in logs.
    pub(crate) what: &'static str,
    /// The path of the list in the API.
    pub(crate) path: &'static str,
    /// Selects some of the objects; `None` selects all.
    pub(crate) selector: Option<Selector>,
    /// Whether to request metadata only.
    pub(crate) metadata_only: bool,
}

/// A selector of objects. Characters that a query cannot have are encoded already.
#[derive(Debug, Clone)]
pub(crate) enum Selector {
    Field(String),
    Label(String),
}

/// A change of the objects.
#[derive(Debug, PartialEq)]
pub(crate) enum Event<T> {
    /// The complete list of objects, after each list request.
    All(Vec<T>),
    /// An object was added or changed.
    Put(T),
    /// An object was deleted.
    Remove(T),
    /// The cluster has no such kind.
    UnknownKind,
}

/// Follows the objects for ever and passes each change to `handle`.
pub(crate) async fn run<T: DeserializeOwned + Send + 'static>(
    client: Client,
    resource: Resource,
    mut handle: impl FnMut(Event<T>),
) {
    let (client, resource) = (&client, &resource);
    let mut position = Position::default();
    loop {
        let step = match position.watched_from.clone() {
            None => {
                let version = position.newest.as_deref().unwrap_or(ANY);
                let listed = list(client, resource, version).await;
                let (step, event) = after_list(&mut position, listed);
                if let Some(event) = event {
                    handle(event);
                }
                step
            }
            Some(version) => {
                let start = Instant::now();
                let watched = watch(client, resource, &version, |event, version| {
                    if let Some(version) = version {
                        position.newest = Some(version.clone());
                        position.watched_from = Some(version);
                    }
                    if let Some(event) = event {
                        handle(event);
                    }
                })
                .await;
                after_watch(&mut position, watched, start.elapsed())
            }
        };
        if let Some((failure, level)) = &step.failure {
            let (what, error) = (resource.what, failure);
            match level {
                Level::Debug => debug!(what, %error, "listing again"),
                Level::Info => info!(what, %error, "the cluster does not know this kind"),
                Level::Warn => warn!(what, %error, "the watch was interrupted"),
            }
        }
        pause(&step, client.succeeded()).await;
    }
}

/// Waits before the next request. After an outage another request's success ends the wait, but not so early that requests which fail
/// in turn would follow each other at once.
async fn pause(step: &Step, succeeded: &Notify) {
    let pause = step.pause(random());
    if !step.is_outage() || pause <= FIRST_PAUSE {
        return sleep(pause).await;
    }
    let success = succeeded.notified();
    tokio::pin!(success);
    // From now on, not from the first poll on.
    success.as_mut().enable();
    let least = FIRST_PAUSE.mul_f64(0.5 + random() / 2.0);
    sleep(least).await;
    tokio::select! {
        () = success => {}
        () = sleep(pause.saturating_sub(least)) => {}
    }
}

/// The progress of list and watch.
#[derive(Debug, Default)]
struct Position {
    /// The version from which the watch continues; without it the next request is a list.
    watched_from: Option<String>,
    /// The newest version so far: an older list would undo changes.
    newest: Option<String>,
    /// Failures since the last success.
    failures: u32,
    knows_kind: Option<bool>,
}

/// The pause before the next request, and the failure to log.
#[derive(Debug)]
struct Step {
    failures: u32,
    retry_after: Option<Duration>,
    failure: Option<(ApiError, Level)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Level {
    Debug,
    Info,
    Warn,
}

impl Step {
    fn immediate() -> Self {
        Self {
            failures: 0,
            retry_after: None,
            failure: None,
        }
    }

    fn after(failures: u32, failure: ApiError, level: Level) -> Self {
        Self {
            failures,
            retry_after: failure.retry_after,
            failure: Some((failure, level)),
        }
    }

    /// Whether the API server did not answer. A refusal does not end with the success of another request.
    fn is_outage(&self) -> bool {
        self.failure.as_ref().is_some_and(|(failure, _)| {
            matches!(failure.kind, ApiErrorKind::Broken | ApiErrorKind::TimedOut)
        })
    }

    fn pause(&self, random: f64) -> Duration {
        let pause = match self.failures {
            0 => Duration::ZERO,
            failures => backoff(failures, FIRST_PAUSE, LONGEST_PAUSE, random),
        };
        let wanted = self.retry_after.unwrap_or_default().min(LONGEST_PAUSE);
        pause.max(wanted.mul_f64(1.0 + random / 4.0))
    }
}

/// Decides what follows a list, which also becomes an event unless it failed.
fn after_list<T>(
    position: &mut Position,
    listed: Result<List<T>, ApiError>,
) -> (Step, Option<Event<T>>) {
    let failure = match listed {
        Ok(list) => {
            position.knows_kind = Some(true);
            position.failures = 0;
            position.newest = Some(list.version.clone());
            position.watched_from = Some(list.version);
            return (Step::immediate(), Some(Event::All(list.items)));
        }
        Err(failure) => failure,
    };
    position.failures += 1;
    match failure.code() {
        Some(NOT_FOUND) => {
            let is_news = position.knows_kind != Some(false);
            position.knows_kind = Some(false);
            position.newest = None;
            let level = if is_news { Level::Info } else { Level::Debug };
            let step = Step::after(position.failures, failure, level);
            (step, Some(Event::UnknownKind))
        }
        // The server does not have the versions that we know: its data was restored from a backup, or it lags behind.
        Some(GONE | GATEWAY_TIMEOUT) if position.newest.is_some() => {
            position.newest = None;
            (Step::after(position.failures, failure, Level::Debug), None)
        }
        _ => (Step::after(position.failures, failure, Level::Warn), None),
    }
}

/// Decides what follows a watch that ended, as every watch does, or failed.
fn after_watch(position: &mut Position, watched: Result<(), ApiError>, lasted: Duration) -> Step {
    if lasted >= SUCCESS_AFTER {
        position.failures = 0;
    }
    match watched {
        Ok(()) if lasted >= SUCCESS_AFTER => Step::immediate(),
        Ok(()) => {
            position.failures += 1;
            let failure = ApiError::broken("it ended at once");
            Step::after(position.failures, failure, Level::Debug)
        }
        // The server no longer has the version from which the watch continues. That is normal.
        Err(failure) if failure.code() == Some(GONE) => {
            position.watched_from = None;
            // A pause, so that not all daemons with a watch of that age list at the same moment.
            position.failures = position.failures.max(1);
            Step::after(position.failures, failure, Level::Debug)
        }
        Err(failure) => {
            position.failures += 1;
            // The kind was deleted, or the answer makes no sense: only a list shows the current objects. Any other refusal concerns the
            // request, and a busy server must not get a list instead of a watch.
            if matches!(
                failure.kind,
                ApiErrorKind::Refused(BAD_REQUEST | NOT_FOUND) | ApiErrorKind::Invalid
            ) {
                position.watched_from = None;
            }
            let is_kind_deleted = failure.code() == Some(NOT_FOUND);
            let level = if is_kind_deleted {
                Level::Debug
            } else {
                Level::Warn
            };
            Step::after(position.failures, failure, level)
        }
    }
}

#[derive(Debug, PartialEq)]
struct List<T> {
    version: String,
    items: Vec<T>,
}

fn unreadable(error: &serde_json::Error) -> ApiError {
    ApiError::invalid(format!("the answer cannot be parsed: {error}"))
}

/// Requests a list that is at least as new as `version`. Its text, which may be far larger than what is kept of it, is never there as a
/// whole.
async fn list<T: DeserializeOwned + Send + 'static>(
    client: &Client,
    resource: &Resource,
    version: &str,
) -> Result<List<T>, ApiError> {
    let path = resource.path_with(&format!("resourceVersion={version}"));
    let mut chunks = client.open(&resource.list_request(path), TIMEOUT).await?;
    let (sender, arriving) = mpsc::channel(CHUNKS);
    let text = ChunkReader {
        arriving,
        chunk: Bytes::new(),
    };
    let parsing = tokio::task::spawn_blocking(|| parse_list(text));
    let mut length = 0;
    let mut is_refused = false;
    while !is_refused && let Some(chunk) = chunks.next(TIMEOUT).await? {
        length += chunk.len();
        if length > MAX_LIST {
            return Err(ApiError::invalid("the list is too long"));
        }
        // The parser ends early with an error alone.
        is_refused = sender.send(chunk).await.is_err();
    }
    drop(sender);
    if !is_refused {
        chunks.finish();
    }
    let parsed = parsing.await;
    parsed.unwrap_or_else(|error| Err(ApiError::invalid(error.to_string())))
}

/// Reads the chunks of a list on a thread that may block. The text ends where its sender is dropped.
struct ChunkReader {
    arriving: mpsc::Receiver<Bytes>,
    chunk: Bytes,
}

impl io::Read for ChunkReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.chunk.is_empty() {
            match self.arriving.blocking_recv() {
                Some(next) => self.chunk = next,
                None => return Ok(0),
            }
        }
        let length = buffer.len().min(self.chunk.len());
        buffer[..length].copy_from_slice(&self.chunk.split_to(length));
        Ok(length)
    }
}

/// Parses a complete list into what is kept of it.
fn parse_list<T: DeserializeOwned>(text: impl io::Read) -> Result<List<T>, ApiError> {
    #[derive(Deserialize)]
    #[serde(bound = "T: DeserializeOwned")]
    struct Answer<T> {
        metadata: Meta,
        #[serde(default)]
        items: Option<Vec<T>>,
    }
    #[derive(Deserialize)]
    struct Meta {
        #[serde(rename = "resourceVersion")]
        resource_version: String,
        #[serde(default, rename = "continue")]
        more: String,
    }
    let answer: Answer<T> =
        serde_json::from_reader(io::BufReader::new(text)).map_err(|error| unreadable(&error))?;
    if !answer.metadata.more.is_empty() {
        return Err(ApiError::invalid(
            "the list is incomplete, although the request has no limit",
        ));
    }
    Ok(List {
        version: answer.metadata.resource_version,
        items: answer.items.unwrap_or_default(),
    })
}

/// One line of a watch's answer.
#[derive(Deserialize)]
struct Line<'a> {
    #[serde(rename = "type")]
    kind: &'a str,
    #[serde(borrow)]
    object: &'a serde_json::value::RawValue,
}

/// Runs one watch to its end and passes each event and its version to `handle`.
async fn watch<T: DeserializeOwned>(
    client: &Client,
    resource: &Resource,
    version: &str,
    mut handle: impl FnMut(Option<Event<T>>, Option<String>),
) -> Result<(), ApiError> {
    let lasts = WATCH.mul_f64(1.0 + random());
    let path = resource.path_with(&format!(
        "watch=true&allowWatchBookmarks=true&resourceVersion={version}&timeoutSeconds={}",
        lasts.as_secs()
    ));
    let mut chunks = client.open(&resource.watch_request(path), TIMEOUT).await?;
    let mut lines = LineSplitter::default();
    let end = Instant::now() + lasts + OVERDUE;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        let Some(chunk) = chunks.next(left).await? else {
            return Ok(());
        };
        lines.push(&chunk, |line| {
            if line.is_empty() {
                return Ok(());
            }
            let (event, version) = parse_line(line)?;
            handle(event, version);
            Ok::<_, ApiError>(())
        })?;
    }
}

/// Parses a line into its event, unless it is a bookmark, and the version of its object.
pub(super) fn parse_line<T: DeserializeOwned>(
    line: &[u8],
) -> Result<(Option<Event<T>>, Option<String>), ApiError> {
    #[derive(Deserialize)]
    struct Object {
        #[serde(default)]
        metadata: Meta,
    }
    #[derive(Deserialize, Default)]
    struct Meta {
        #[serde(default, rename = "resourceVersion")]
        resource_version: Option<String>,
    }
    #[derive(Deserialize)]
    struct Status {
        #[serde(default)]
        code: u16,
    }
    let line: Line = serde_json::from_slice(line).map_err(|error| unreadable(&error))?;
    let text = line.object.get();
    let object = || serde_json::from_str(text).map_err(|error| unreadable(&error));
    let event = match line.kind {
        "ADDED" | "MODIFIED" => Some(Event::Put(object()?)),
        "DELETED" => Some(Event::Remove(object()?)),
        "BOOKMARK" => None,
        "ERROR" => {
            let code = serde_json::from_str::<Status>(text).map_or(500, |status| status.code);
            return Err(ApiError::refused(code, None, text.as_bytes()));
        }
        other => {
            return Err(ApiError::invalid(format!(
                "unknown type {other} of a watch event"
            )));
        }
    };
    let object: Object = serde_json::from_str(text).map_err(|error| unreadable(&error))?;
    let version = object.metadata.resource_version;
    Ok((event, version.filter(|version| !version.is_empty())))
}

impl Resource {
    fn path_with(&self, query: &str) -> String {
        let path = self.path;
        match &self.selector {
            Some(Selector::Field(selector)) => format!("{path}?fieldSelector={selector}&{query}"),
            Some(Selector::Label(selector)) => format!("{path}?labelSelector={selector}&{query}"),
            None => format!("{path}?{query}"),
        }
    }

    fn list_request(&self, path: String) -> ApiRequest {
        let request = ApiRequest::get(path);
        if self.metadata_only {
            request.metadata_list()
        } else {
            request
        }
    }

    /// Returns the request of a watch, which sends objects one by one: the API server ends a watch that requests their metadata as a
    /// list at its first event.
    fn watch_request(&self, path: String) -> ApiRequest {
        let request = ApiRequest::get(path);
        if self.metadata_only {
            request.metadata()
        } else {
            request
        }
    }
}

/// Returns a selector `key=value`, encoded for a query.
pub(crate) fn selector(key: &str, value: &str) -> String {
    format!("{}%3D{}", encoded(key), encoded(value))
}

/// Returns a field selector `key!=value`, encoded for a query.
pub(crate) fn unequal(key: &str, value: &str) -> String {
    format!("{key}%21%3D{}", encoded(value))
}

fn encoded(value: &str) -> String {
    let mut text = String::new();
    for byte in value.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            text.push(char::from(byte));
        } else {
            // Writing to a string cannot fail.
            let _ = write!(text, "%{byte:02X}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn list(position: &mut Position, version: &str) -> (Step, Option<Event<u8>>) {
        let list = List {
            version: version.to_owned(),
            items: vec![1, 2],
        };
        after_list(position, Ok(list))
    }

    fn refused<T>(code: u16) -> Result<T, ApiError> {
        Err(ApiError::refused(code, None, b""))
    }

    #[test]
    fn a_watch_continues_from_the_lists_version() {
        let mut position = Position::default();
        let (step, event) = list(&mut position, "7");
        assert_eq!(event, Some(Event::All(vec![1, 2])));
        assert_eq!(step.pause(1.0), Duration::ZERO);
        assert_eq!(position.watched_from.as_deref(), Some("7"));
        let step = after_watch(&mut position, Ok(()), Duration::from_mins(5));
        assert_eq!(step.pause(1.0), Duration::ZERO);
        assert_eq!(position.watched_from.as_deref(), Some("7"));
    }

    #[test]
    fn an_expired_version_is_followed_by_a_list_that_is_not_older() {
        let mut position = Position::default();
        list(&mut position, "7");
        let step = after_watch(&mut position, refused(410), Duration::from_mins(1));
        assert_eq!(position.watched_from, None);
        assert_eq!(
            position.newest.as_deref(),
            Some("7"),
            "older lists are refused"
        );
        assert!(
            step.pause(0.0) >= Duration::from_millis(500),
            "not all daemons at once"
        );
        assert!(matches!(step.failure, Some((_, Level::Debug))));
        // The server has not reached 7 yet, so its history is another one.
        after_list(&mut position, refused::<List<u8>>(504));
        assert_eq!(position.newest, None);
    }

    #[test]
    fn a_broken_watch_continues_from_its_last_version() {
        let mut position = Position::default();
        list(&mut position, "7");
        let broken = || Err(ApiError::broken("reset"));
        let mut pauses = Vec::new();
        for _ in 0..8 {
            let step = after_watch(&mut position, broken(), Duration::ZERO);
            pauses.push(step.pause(1.0).as_secs());
        }
        assert_eq!(pauses, [1, 2, 4, 8, 16, 30, 30, 30]);
        assert_eq!(position.watched_from.as_deref(), Some("7"));
        // A watch that lasted resets the pauses.
        let step = after_watch(&mut position, broken(), Duration::from_mins(1));
        assert_eq!(step.pause(1.0).as_secs(), 1);
        assert_eq!(position.watched_from.as_deref(), Some("7"));
    }

    #[test]
    fn a_refused_watch_continues_from_its_last_version() {
        for (code, expected) in [
            (400, None),
            (401, Some("7")),
            (403, Some("7")),
            (404, None),
            (410, None),
            (429, Some("7")),
            (500, Some("7")),
            (503, Some("7")),
            (504, Some("7")),
        ] {
            let mut position = Position::default();
            list(&mut position, "7");
            let step = after_watch(&mut position, refused(code), Duration::ZERO);
            assert_eq!(position.watched_from.as_deref(), expected, "{code}");
            assert!(step.pause(0.0) >= Duration::from_millis(500), "{code}");
        }
    }

    #[test]
    fn a_watch_that_ends_at_once_is_followed_by_a_pause() {
        let mut position = Position::default();
        list(&mut position, "7");
        let step = after_watch(&mut position, Ok(()), Duration::ZERO);
        assert!(step.pause(0.0) >= Duration::from_millis(500));
    }

    #[test]
    fn an_unknown_kind_is_logged_once() {
        let mut position = Position::default();
        let (step, event) = after_list(&mut position, refused::<List<u8>>(404));
        assert_eq!(event, Some(Event::UnknownKind));
        assert!(matches!(step.failure, Some((_, Level::Info))));
        let (step, _) = after_list(&mut position, refused::<List<u8>>(404));
        assert!(matches!(step.failure, Some((_, Level::Debug))));
    }

    #[tokio::test]
    async fn success_of_another_request_ends_the_pause_after_an_outage() {
        let succeeded = Notify::new();
        let paused = async |failure| {
            let step = Step::after(9, failure, Level::Warn);
            let start = Instant::now();
            let success = async {
                tokio::task::yield_now().await;
                succeeded.notify_waiters();
            };
            let limit = Duration::from_secs(3);
            let both = async { tokio::join!(pause(&step, &succeeded), success) };
            let is_over = tokio::time::timeout(limit, both).await.is_ok();
            is_over.then(|| start.elapsed())
        };
        let woken = paused(ApiError::broken("refused")).await.unwrap();
        assert!(woken >= FIRST_PAUSE / 2, "{woken:?}");
        let busy = ApiError::refused(429, None, b"");
        assert_eq!(paused(busy).await, None);
    }

    #[test]
    fn retry_after_lengthens_the_pause() {
        let failure = ApiError::refused(429, Some(Duration::from_secs(5)), b"");
        let step = Step::after(1, failure, Level::Warn);
        assert_eq!(step.pause(0.0), Duration::from_secs(5));
        assert_eq!(step.pause(1.0), Duration::from_millis(6250));
        let failure = ApiError::refused(429, Some(Duration::from_hours(5)), b"");
        let step = Step::after(1, failure, Level::Warn);
        assert_eq!(step.pause(0.0), LONGEST_PAUSE);
    }

    #[test]
    fn a_list_is_complete_or_an_error() {
        let parse = |list: Value| parse_list::<Value>(list.to_string().as_bytes());
        let complete = json!({"metadata": {"resourceVersion": "7"}, "items": [{"a": 1}, {}]});
        let expected = List {
            version: "7".to_owned(),
            items: vec![json!({"a": 1}), json!({})],
        };
        assert_eq!(parse(complete.clone()).unwrap(), expected);
        let text = complete.to_string();
        for end in 0..text.len() {
            let cut = parse_list::<Value>(&text.as_bytes()[..end]);
            assert_eq!(cut.unwrap_err().kind, ApiErrorKind::Invalid, "{end}");
        }
        let empty = json!({"metadata": {"resourceVersion": "7"}, "items": null});
        assert_eq!(parse(empty).unwrap().items, Vec::<Value>::new());
        parse(json!({"metadata": {"resourceVersion": "7", "continue": "x"}, "items": []}))
            .unwrap_err();
        parse(json!({"items": []})).unwrap_err();
    }

    #[test]
    fn lines_are_parsed_into_events_and_versions() {
        let line = |kind: &str| {
            let object =
                json!({"metadata": {"resourceVersion": "8"}, "code": 410, "message": "old"});
            parse_line::<Value>(
                json!({"type": kind, "object": object})
                    .to_string()
                    .as_bytes(),
            )
        };
        let (event, version) = line("ADDED").unwrap();
        assert!(matches!(event, Some(Event::Put(_))));
        assert_eq!(version.as_deref(), Some("8"));
        assert!(matches!(line("DELETED").unwrap().0, Some(Event::Remove(_))));
        let (event, version) = line("BOOKMARK").unwrap();
        assert_eq!((event, version.as_deref()), (None, Some("8")));
        let failure = line("ERROR").unwrap_err();
        assert_eq!(failure.to_string(), "old (code 410)");
        assert_eq!(line("OTHER").unwrap_err().kind, ApiErrorKind::Invalid);
        assert!(parse_line::<Value>(b"{").is_err());
    }

    #[test]
    fn selectors_are_encoded() {
        assert_eq!(
            selector("spec.nodeName", "node-a.x"),
            "spec.nodeName%3Dnode-a.x"
        );
        assert_eq!(selector("a", "b/c d&e"), "a%3Db%2Fc%20d%26e");
    }
}
