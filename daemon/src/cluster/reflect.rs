//! Keeps up with objects of one kind: a list from the API server's cache, then a watch from there on, for ever.
//!
//! A list is never asked of etcd: version 0 means "whatever the cache has", a later one "at least this", and no limit is given, since
//! older releases send limited lists to etcd. Items are decoded one by one while they arrive. What comes of answers and errors is
//! decided by [`after_list`] and [`after_watch`]; the loop does it.

use std::{fmt::Write as _, time::Duration};

use serde::{Deserialize, de::DeserializeOwned};
use tokio::time::{Instant, sleep};
use tracing::{debug, info, warn};

use super::{
    retry::{backoff, random},
    split::{Lines, SplitError, Splitter},
};
use crate::access::{Ask, Client, Failure, FailureKind};

/// How long the API server may take until it begins to answer, and then for each piece of a list.
const PATIENCE: Duration = Duration::from_secs(10);
/// A watch lasts so long, up to twice that, so that not all of a cluster come again at once.
const WATCH: Duration = Duration::from_mins(5);
/// The API server ends a watch itself; a little later it is certain that it will not.
const OVERDUE: Duration = Duration::from_secs(30);
/// The pause after the first failure and the longest, doubled with each.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// A watch that lasted this long was well.
const WELL_AFTER: Duration = Duration::from_secs(5);
/// What the API server's cache has, whatever that is.
const ANY: &str = "0";

const NOT_FOUND: u16 = 404;
const GONE: u16 = 410;
const TIMEOUT: u16 = 504;

/// What is followed.
#[derive(Debug, Clone)]
pub(crate) struct Resource {
    /// Its name in logs.
    pub(crate) what: &'static str,
    /// Its path in the API.
    pub(crate) path: &'static str,
    /// Which of all objects, `None` for all; characters that a query cannot have are encoded already.
    pub(crate) field_selector: Option<String>,
    /// Whether metadata is enough.
    pub(crate) metadata_only: bool,
}

/// What happens to objects.
#[derive(Debug, PartialEq)]
pub(crate) enum Event<T> {
    /// These are all. They come after each list.
    All(Vec<T>),
    /// It was added or changed.
    Put(T),
    /// It is gone.
    Remove(T),
    /// The cluster does not know the kind.
    UnknownKind,
}

/// Follows for ever; `handle` gets what happens.
pub(crate) async fn follow<T: DeserializeOwned>(
    client: Client,
    resource: Resource,
    mut handle: impl FnMut(Event<T>),
) {
    let (client, resource) = (&client, &resource);
    let mut at = At::default();
    loop {
        let step = match at.watched_from.clone() {
            None => {
                let version = at.newest.as_deref().unwrap_or(ANY);
                let listed = list(client, resource, version).await;
                let (step, event) = after_list(&mut at, listed);
                if let Some(event) = event {
                    handle(event);
                }
                step
            }
            Some(version) => {
                let start = Instant::now();
                let watched = watch(client, resource, &version, |event, version| {
                    if let Some(version) = version {
                        at.newest = Some(version.clone());
                        at.watched_from = Some(version);
                    }
                    if let Some(event) = event {
                        handle(event);
                    }
                })
                .await;
                after_watch(&mut at, watched, start.elapsed())
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
        sleep(step.pause(random())).await;
    }
}

/// How far it is.
#[derive(Debug, Default)]
struct At {
    /// Where the watch goes on; without it the objects are listed.
    watched_from: Option<String>,
    /// The newest version that was seen: a list that is older would take something back.
    newest: Option<String>,
    /// Failures since something went well.
    failures: u32,
    knows_kind: Option<bool>,
}

/// What to do next, and what to say of it.
#[derive(Debug)]
struct Step {
    failures: u32,
    retry_after: Option<Duration>,
    failure: Option<(Failure, Level)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Level {
    Debug,
    Info,
    Warn,
}

impl Step {
    fn at_once() -> Self {
        Self {
            failures: 0,
            retry_after: None,
            failure: None,
        }
    }

    fn after(failures: u32, failure: Failure, level: Level) -> Self {
        Self {
            failures,
            retry_after: failure.retry_after,
            failure: Some((failure, level)),
        }
    }

    /// Returns how long to wait.
    fn pause(&self, random: f64) -> Duration {
        let pause = match self.failures {
            0 => Duration::ZERO,
            failures => backoff(failures, FIRST_PAUSE, LONGEST_PAUSE, random),
        };
        let wanted = self.retry_after.unwrap_or_default().min(LONGEST_PAUSE);
        pause.max(wanted.mul_f64(1.0 + random / 4.0))
    }
}

/// A list came, or did not.
fn after_list<T>(at: &mut At, listed: Result<List<T>, Failure>) -> (Step, Option<Event<T>>) {
    let failure = match listed {
        Ok(list) => {
            at.knows_kind = Some(true);
            at.failures = 0;
            at.newest = Some(list.version.clone());
            at.watched_from = Some(list.version);
            return (Step::at_once(), Some(Event::All(list.items)));
        }
        Err(failure) => failure,
    };
    at.failures += 1;
    match failure.code() {
        Some(NOT_FOUND) => {
            let is_news = at.knows_kind != Some(false);
            at.knows_kind = Some(false);
            at.newest = None;
            let level = if is_news { Level::Info } else { Level::Debug };
            let step = Step::after(at.failures, failure, level);
            (step, Some(Event::UnknownKind))
        }
        // The server's history is another one than we know: restored from a copy, or behind.
        Some(GONE | TIMEOUT) if at.newest.is_some() => {
            at.newest = None;
            (Step::after(at.failures, failure, Level::Debug), None)
        }
        _ => (Step::after(at.failures, failure, Level::Warn), None),
    }
}

/// A watch ended, as all do, or with an error.
fn after_watch(at: &mut At, watched: Result<(), Failure>, lasted: Duration) -> Step {
    if lasted >= WELL_AFTER {
        at.failures = 0;
    }
    match watched {
        Ok(()) if lasted >= WELL_AFTER => Step::at_once(),
        Ok(()) => {
            at.failures += 1;
            let failure = Failure::broken("it ended at once");
            Step::after(at.failures, failure, Level::Debug)
        }
        // What the watch goes on from is forgotten: as said, and nothing to wonder about.
        Err(failure) if failure.code() == Some(GONE) => {
            at.watched_from = None;
            // Not at the same moment as all others, whose watch was as old.
            at.failures = at.failures.max(1);
            Step::after(at.failures, failure, Level::Debug)
        }
        Err(failure) => {
            at.failures += 1;
            // A kind that is gone, or an answer that makes no sense: a list tells what is left.
            if matches!(
                failure.kind,
                FailureKind::Refused(_) | FailureKind::Unusable
            ) {
                at.watched_from = None;
            }
            let is_kind_gone = failure.code() == Some(NOT_FOUND);
            let level = if is_kind_gone {
                Level::Debug
            } else {
                Level::Warn
            };
            Step::after(at.failures, failure, level)
        }
    }
}

struct List<T> {
    version: String,
    items: Vec<T>,
}

#[derive(Deserialize)]
struct Envelope {
    metadata: Versioned,
}

#[derive(Deserialize)]
struct Versioned {
    #[serde(rename = "resourceVersion")]
    resource_version: String,
    #[serde(default, rename = "continue")]
    more: String,
}

impl From<SplitError> for Failure {
    fn from(error: SplitError) -> Self {
        match error {
            SplitError::Cut => Self::broken(error.to_string()),
            SplitError::TooLong => Self::unusable(error.to_string()),
        }
    }
}

/// Why an answer cannot be read.
fn unreadable(error: &serde_json::Error) -> Failure {
    Failure::unusable(format!("the answer cannot be read: {error}"))
}

/// One list, at least as new as `version`.
async fn list<T: DeserializeOwned>(
    client: &Client,
    resource: &Resource,
    version: &str,
) -> Result<List<T>, Failure> {
    let path = resource.path_with(&format!("resourceVersion={version}"));
    let mut pieces = client.open(&resource.list_request(path), PATIENCE).await?;
    let (mut splitter, mut items) = (Splitter::default(), Vec::new());
    while let Some(piece) = pieces.next(PATIENCE).await? {
        splitter.push(&piece, |item| {
            items.push(serde_json::from_slice(item).map_err(|error| unreadable(&error))?);
            Ok::<_, Failure>(())
        })?;
    }
    pieces.finish();
    let envelope = splitter.finish()?;
    let envelope: Envelope =
        serde_json::from_slice(&envelope).map_err(|error| unreadable(&error))?;
    if !envelope.metadata.more.is_empty() {
        return Err(Failure::unusable(
            "the list is a part, though all was asked for",
        ));
    }
    Ok(List {
        version: envelope.metadata.resource_version,
        items,
    })
}

/// One line of a watch.
#[derive(Deserialize)]
struct Line<'a> {
    #[serde(rename = "type")]
    kind: &'a str,
    #[serde(borrow)]
    object: &'a serde_json::value::RawValue,
}

/// One watch; `handle` gets each event and the version that it brings.
async fn watch<T: DeserializeOwned>(
    client: &Client,
    resource: &Resource,
    version: &str,
    mut handle: impl FnMut(Option<Event<T>>, Option<String>),
) -> Result<(), Failure> {
    let lasts = WATCH.mul_f64(1.0 + random());
    let path = resource.path_with(&format!(
        "watch=true&allowWatchBookmarks=true&resourceVersion={version}&timeoutSeconds={}",
        lasts.as_secs()
    ));
    let mut pieces = client.open(&resource.watch_request(path), PATIENCE).await?;
    let mut lines = Lines::default();
    let end = Instant::now() + lasts + OVERDUE;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        let Some(piece) = pieces.next(left).await? else {
            return Ok(());
        };
        lines.push(&piece, |line| {
            if line.is_empty() {
                return Ok(());
            }
            let (event, version) = read(line)?;
            handle(event, version);
            Ok::<_, Failure>(())
        })?;
    }
}

/// What a line says: an event, unless it is a bookmark, and the version of its object.
fn read<T: DeserializeOwned>(line: &[u8]) -> Result<(Option<Event<T>>, Option<String>), Failure> {
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
            return Err(Failure::refused(code, None, text.as_bytes()));
        }
        other => {
            return Err(Failure::unusable(format!(
                "there are no events of type {other}"
            )));
        }
    };
    let object: Object = serde_json::from_str(text).map_err(|error| unreadable(&error))?;
    let version = object.metadata.resource_version;
    Ok((event, version.filter(|version| !version.is_empty())))
}

impl Resource {
    fn path_with(&self, query: &str) -> String {
        match &self.field_selector {
            Some(selector) => format!("{}?fieldSelector={selector}&{query}", self.path),
            None => format!("{}?{query}", self.path),
        }
    }

    fn list_request(&self, path: String) -> Ask {
        let ask = Ask::get(path);
        if self.metadata_only {
            ask.metadata_list()
        } else {
            ask
        }
    }

    /// A watch sends objects one by one: the API server ends a watch that asks for their metadata as a list at its first event.
    fn watch_request(&self, path: String) -> Ask {
        let ask = Ask::get(path);
        if self.metadata_only {
            ask.metadata()
        } else {
            ask
        }
    }
}

/// A field selector for a query: `key=value` with what a query cannot have encoded.
pub(crate) fn selector(key: &str, value: &str) -> String {
    let mut text = format!("{key}%3D");
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

    /// A list came.
    fn list(at: &mut At, version: &str) -> (Step, Option<Event<u8>>) {
        let list = List {
            version: version.to_owned(),
            items: vec![1, 2],
        };
        after_list(at, Ok(list))
    }

    fn refused<T>(code: u16) -> Result<T, Failure> {
        Err(Failure::refused(code, None, b""))
    }

    #[test]
    fn a_list_is_followed_by_a_watch_from_there() {
        let mut at = At::default();
        let (step, event) = list(&mut at, "7");
        assert_eq!(event, Some(Event::All(vec![1, 2])));
        assert_eq!(step.pause(1.0), Duration::ZERO);
        assert_eq!(at.watched_from.as_deref(), Some("7"));
        let step = after_watch(&mut at, Ok(()), Duration::from_mins(5));
        assert_eq!(step.pause(1.0), Duration::ZERO);
        assert_eq!(at.watched_from.as_deref(), Some("7"));
    }

    #[test]
    fn history_that_is_gone_is_listed_again_and_not_from_the_past() {
        let mut at = At::default();
        list(&mut at, "7");
        let step = after_watch(&mut at, refused(410), Duration::from_mins(1));
        assert_eq!(at.watched_from, None);
        assert_eq!(at.newest.as_deref(), Some("7"), "no older list will do");
        assert!(
            step.pause(0.0) >= Duration::from_millis(500),
            "not all at once"
        );
        assert!(matches!(step.failure, Some((_, Level::Debug))));
        // The server says that 7 is still to come: its history is another one.
        after_list(&mut at, refused::<List<u8>>(504));
        assert_eq!(at.newest, None);
    }

    #[test]
    fn watches_that_break_go_on_where_they_were() {
        let mut at = At::default();
        list(&mut at, "7");
        let broken = || Err(Failure::broken("reset"));
        let mut pauses = Vec::new();
        for _ in 0..8 {
            let step = after_watch(&mut at, broken(), Duration::ZERO);
            pauses.push(step.pause(1.0).as_secs());
        }
        assert_eq!(pauses, [1, 2, 4, 8, 16, 30, 30, 30]);
        assert_eq!(at.watched_from.as_deref(), Some("7"));
        // One that lasted is a new beginning.
        let step = after_watch(&mut at, broken(), Duration::from_mins(1));
        assert_eq!(step.pause(1.0).as_secs(), 1);
        let step = after_watch(&mut at, refused(403), Duration::ZERO);
        assert_eq!(step.pause(1.0).as_secs(), 2);
        assert_eq!(at.watched_from, None);
    }

    #[test]
    fn watches_that_end_at_once_are_not_started_in_a_loop() {
        let mut at = At::default();
        list(&mut at, "7");
        let step = after_watch(&mut at, Ok(()), Duration::ZERO);
        assert!(step.pause(0.0) >= Duration::from_millis(500));
    }

    #[test]
    fn unknown_kind_is_news_once() {
        let mut at = At::default();
        let (step, event) = after_list(&mut at, refused::<List<u8>>(404));
        assert_eq!(event, Some(Event::UnknownKind));
        assert!(matches!(step.failure, Some((_, Level::Info))));
        let (step, _) = after_list(&mut at, refused::<List<u8>>(404));
        assert!(matches!(step.failure, Some((_, Level::Debug))));
    }

    #[test]
    fn retry_after_counts() {
        let failure = Failure::refused(429, Some(Duration::from_secs(5)), b"");
        let step = Step::after(1, failure, Level::Warn);
        assert_eq!(step.pause(0.0), Duration::from_secs(5));
        assert_eq!(step.pause(1.0), Duration::from_millis(6250));
        let failure = Failure::refused(429, Some(Duration::from_hours(5)), b"");
        let step = Step::after(1, failure, Level::Warn);
        assert_eq!(step.pause(0.0), LONGEST_PAUSE);
    }

    #[test]
    fn lines_are_events_and_versions() {
        let line = |kind: &str| {
            let object =
                json!({"metadata": {"resourceVersion": "8"}, "code": 410, "message": "old"});
            read::<Value>(
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
        assert_eq!(line("OTHER").unwrap_err().kind, FailureKind::Unusable);
        assert!(read::<Value>(b"{").is_err());
    }

    #[test]
    fn names_in_selectors_are_encoded() {
        assert_eq!(
            selector("spec.nodeName", "node-a.x"),
            "spec.nodeName%3Dnode-a.x"
        );
        assert_eq!(selector("a", "b/c d&e"), "a%3Db%2Fc%20d%26e");
    }
}
