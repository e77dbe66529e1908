//! Renders a failure for the runtime and for events: one line of limited length that begins with the pod and ends with the hint, and an id
//! under which the log has the complete text. The same failure has the same id, so that a search in the log finds every occurrence.

use cni::types::CniError;
use sha2::{Digest as _, Sha256};

use crate::engine::{Failure, Length};

/// The runtime's event holds fewer characters than this, including the shim's prefix.
pub const LIMIT: usize = 300;
/// Limit for an event that lists the addresses of an abandoned network; the API server accepts 1,024 bytes.
const FULL_LIMIT: usize = 900;
/// Limit in bytes for a text that is kept in memory.
const KEPT: usize = 4 << 10;
/// The shim's prefix of a daemon's error.
const SHIM_PREFIX: &str = "CmdCheck (shim): CNI request failed with status 400: ERRORED: ";
/// Replaces the part that is cut out.
const GAP: &str = " … ";

/// Returns the id of a failure: a hash of its pod and of its text without the words in `changing`, which differ at the next attempt.
pub fn id(about: &str, failure: &Failure, changing: &[&str]) -> String {
    let CniError { code, details, .. } = &failure.error;
    let mut text = format!("{code} {failure} {details}");
    for word in changing.iter().filter(|word| !word.is_empty()) {
        text = text.replace(word, "");
    }
    let mut hash = Sha256::new();
    hash.update(about);
    hash.update([0]);
    hash.update(text);
    let digest = hash.finalize();
    let first = digest.first_chunk().expect("a digest has 32 bytes");
    format!("{:08x}", u32::from_be_bytes(*first))
}

/// Returns the answer to the runtime: the shortened text, with the plugin's details, or else the word of the cause, where they fit.
pub fn answer(failure: &Failure, id: &str) -> CniError {
    let room = LIMIT - 1 - SHIM_PREFIX.chars().count();
    let msg = text(failure, id, room, room);
    let details = match failure.error.details.as_str() {
        "" => failure.cause.details(),
        details => one_line(details),
    };
    let fits = msg.chars().count() + "; ".len() + details.chars().count() <= room;
    CniError::new(failure.error.code, msg).with_details(if fits { details } else { String::new() })
}

/// Returns the message for an event of the daemon.
pub fn event(failure: &Failure, id: &str) -> String {
    text(failure, id, LIMIT - 1, LIMIT - 1)
}

/// Returns the message for an event that is cut only where the API server would refuse it.
pub fn event_in_full(failure: &Failure, id: &str) -> String {
    text(failure, id, LIMIT - 1, FULL_LIMIT - 1)
}

/// Returns the beginning of a text, as much as is kept in memory. The log has all of it.
pub(crate) fn kept(text: &str) -> String {
    let end = text.floor_char_boundary(KEPT);
    if end == text.len() {
        text.to_owned()
    } else {
        format!("{}{}", &text[..end], GAP.trim_end())
    }
}

/// Returns the longest text that has at most `room` characters. The shortest one loses its middle if it has more than `most`.
fn text(failure: &Failure, id: &str, room: usize, most: usize) -> String {
    let end = format!(" (id {id})");
    let (room, most) = (room - end.chars().count(), most - end.chars().count());
    let mut texts = Length::ALL
        .map(|length| one_line(&failure.text(length)))
        .into_iter();
    let fitting = texts.find(|text| text.chars().count() <= room);
    format!("{}{end}", fitting.unwrap_or_else(|| cut(failure, most)))
}

/// Cuts the shortest text to `room` characters; each of several failures gets an equal share.
fn cut(failure: &Failure, room: usize) -> String {
    const SEVERAL: &str = "errors: ";
    const BETWEEN: &str = " / ";
    let whole = one_line(&failure.text(Length::Shortest));
    let count = failure.parts.len();
    if whole.chars().count() <= room || count == 0 || (room - SEVERAL.len()) / count < 40 {
        return fitted(&whole, room);
    }
    let each = (room - SEVERAL.len()) / count - BETWEEN.len();
    let parts = failure.texts_of_parts(Length::Shortest);
    let parts: Vec<_> = parts
        .iter()
        .map(|part| fitted(&one_line(part), each))
        .collect();
    format!("{SEVERAL}{}", parts.join(BETWEEN))
}

/// Keeps begin and end of a text that is too long: the begin names the pod, the end is the hint.
fn fitted(message: &str, room: usize) -> String {
    let characters: Vec<char> = message.chars().collect();
    if characters.len() <= room {
        return message.to_owned();
    }
    let kept = room - GAP.chars().count();
    let begin = kept * 2 / 3;
    let end = characters.len() - (kept - begin);
    let part = |part: &[char]| part.iter().collect::<String>();
    format!(
        "{}{GAP}{}",
        part(&characters[..begin]).trim_end(),
        part(&characters[end..]).trim_start()
    )
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use api::cause::Cause;
    use plan::PlanError;

    use super::*;
    use crate::state::PodRef;

    const POD: &str = "shop/cart-5d8f7c9b4-x2k8q";

    fn pod() -> PodRef {
        PodRef {
            namespace: "shop".to_owned(),
            name: "cart-5d8f7c9b4-x2k8q".to_owned(),
            uid: "36a0c1f2-0000-4000-8000-000000000000".to_owned(),
        }
    }

    fn plain(code: u32, text: impl Into<String>) -> Failure {
        Failure::new(Cause::PluginFailed, CniError::new(code, text))
    }

    fn on_network(step: &'static str, network: &str, text: impl Into<String>) -> Failure {
        plain(11, text).on_network(&pod(), step, network)
    }

    #[test]
    fn short_error_is_unchanged() {
        let mut complete = plain(11, "no luck");
        complete.error.details = "refused".to_owned();
        let short = answer(&complete, "0a0b0c0d");
        assert_eq!(short.to_string(), "no luck (id 0a0b0c0d); refused");
        assert_eq!(short.code, 11);
    }

    #[test]
    fn answer_without_details_names_the_cause() {
        let short = answer(&plain(11, "no luck"), "0a0b0c0d");
        assert_eq!(short.details, "cause=plugin-failed");
        let long = answer(&plain(11, "no luck ".repeat(27)), "0a0b0c0d");
        assert_eq!(long.details, "", "{}", long.msg);
    }

    #[test]
    fn long_error_keeps_pod_network_cause_and_hint() {
        let mut long = on_network(
            "adding container to",
            "storage",
            format!("no address is left in the range{}", " of many".repeat(100)),
        )
        .about(pod());
        long.hint = "enlarge the range".to_owned();
        long.error.details = "x".repeat(500);
        let short = answer(&long, "0a0b0c0d");
        let event_text = format!("{SHIM_PREFIX}{short}");
        assert!(event_text.chars().count() < LIMIT, "{event_text}");
        for word in [
            POD,
            "storage",
            "no address",
            "enlarge the range (id 0a0b0c0d)",
        ] {
            assert!(event_text.contains(word), "no {word} in {event_text}");
        }
        assert!(event(&long, "0a0b0c0d").chars().count() < LIMIT);
    }

    #[test]
    fn full_event_is_cut_at_the_limit_of_the_api_server() {
        let left = |count| {
            let text = "net1 10.0.0.1 ".repeat(count);
            let text = format!("{text}; free them by hand");
            on_network("removing container from", "storage", text)
        };
        let full = event_in_full(&left(20), "0a0b0c0d");
        assert!(
            full.chars().count() > LIMIT && !full.contains('…'),
            "{full}"
        );
        let longer = event_in_full(&left(100), "0a0b0c0d");
        assert!(longer.chars().count() < FULL_LIMIT, "{longer}");
    }

    #[test]
    fn long_path_is_kept_by_a_shorter_context() {
        let error = plain(
            11,
            "failed to get clusterNetwork /etc/cni/multus/net.d: /etc/cni/multus/net.d/05-broken.conf has neither a \"type\" nor a list of \"plugins\": correct it, or take it away",
        )
        .about(pod());
        let short = answer(&error, "0a0b0c0d").msg;
        assert!(short.starts_with(&format!("pod {POD}: failed")), "{short}");
        assert!(short.contains("/05-broken.conf has neither"), "{short}");
        assert!(!short.contains('…'), "{short}");
    }

    #[test]
    fn pod_is_named_once_in_a_long_error_whose_text_names_it() {
        let error = PlanError::UnreadPod {
            pod: POD.to_owned(),
            reason: "x".repeat(300),
        };
        let short = answer(&Failure::from(error).about(pod()), "0a0b0c0d").msg;
        assert_eq!(short.matches(POD).count(), 1, "{short}");
    }

    #[test]
    fn several_errors_are_all_named() {
        let one = |network: &&str| {
            let text = format!(
                "plugin type=\"bridge\" of network \"{network}\" failed (DEL): {network} stays"
            );
            on_network("removing container from", network, text)
        };
        for (networks, expected) in [(&["a", "b"][..], 2), (&["a", "b", "c", "d"], 4)] {
            let failure = Failure::sum(networks.iter().map(one).collect());
            let short = answer(&failure, "0a0b0c0d").msg;
            let named = networks
                .iter()
                .filter(|network| short.contains(&format!("{network} stays")));
            assert_eq!(named.count(), expected, "{short}");
            assert_eq!(short.matches(POD).count(), 1, "{short}");
            assert!(short.chars().count() + SHIM_PREFIX.len() < LIMIT, "{short}");
        }
    }

    #[test]
    fn every_length_fits_the_limit_in_one_line() {
        for length in 0..700 {
            let short = answer(&plain(1, "ä\n".repeat(length)), "0a0b0c0d");
            assert!(format!("{SHIM_PREFIX}{short}").chars().count() < LIMIT);
            assert!(!short.msg.contains('\n') && short.msg.ends_with("(id 0a0b0c0d)"));
        }
    }

    #[test]
    fn same_failure_has_the_same_id() {
        let at = |container: &str, cause: &str| {
            let failure = plain(7, format!("{cause} for {container}"));
            id(POD, &failure, &[container, ""])
        };
        assert_eq!(at("c1", "no luck"), at("c2", "no luck"));
        assert_ne!(at("c1", "no luck"), at("c1", "much luck"));
        let other = plain(7, "no luck for ");
        assert_ne!(at("c1", "no luck"), id("shop/other", &other, &[]));
        assert_eq!(at("c1", "no luck").len(), 8);
    }
}
