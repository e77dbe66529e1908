//! Shortens an error for events: one line of limited length that begins with the pod and ends with the hint, and an id under which the log
//! has the complete text. The same failure has the same id, so that a search in the log finds every occurrence.

use cni::types::CniError;
use sha2::{Digest as _, Sha256};

/// The runtime's event holds fewer characters than this, including the shim's prefix.
pub const LIMIT: usize = 300;
/// Limit for an event that lists the addresses of an abandoned network; the API server accepts 1,024 bytes.
const FULL_LIMIT: usize = 900;
/// Limit in bytes for a text that is kept in memory.
const KEPT: usize = 4 << 10;
/// The shim's prefix of a daemon's error.
const OF_SHIM: &str = "CmdCheck (shim): CNI request failed with status 400: ERRORED: ";
/// Replaces the part that is cut out.
const GAP: &str = " … ";

/// Returns the id of a failure: a hash of its pod and of its text without the words in `changing`, which differ at the next attempt.
pub fn id(about: &str, error: &CniError, changing: &[&str]) -> String {
    let mut text = format!("{} {} {}", error.code, error.msg, error.details);
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

/// Returns the error for the runtime. `pod` is `namespace/name`; a text that is too long loses repeated mentions of it. Details that do not
/// fit are only in the log.
pub fn error(error: &CniError, id: &str, pod: &str) -> CniError {
    let room = LIMIT - 1 - OF_SHIM.chars().count();
    let msg = text(&error.msg, id, pod, room, room);
    let details = one_line(&error.details);
    let fits = msg.chars().count() + "; ".len() + details.chars().count() <= room;
    CniError::new(error.code, msg).with_details(if fits { details } else { String::new() })
}

/// Returns the message for an event of the daemon.
pub fn event(message: &str, id: &str, pod: &str) -> String {
    text(message, id, pod, LIMIT - 1, LIMIT - 1)
}

/// Returns the message for an event that is cut only where the API server would refuse it.
pub fn event_in_full(message: &str, id: &str, pod: &str) -> String {
    text(message, id, pod, LIMIT - 1, FULL_LIMIT - 1)
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

/// Removes repetitions until the message has at most `room` characters, and cuts out its middle if it still has more than `most`.
fn text(message: &str, id: &str, pod: &str, room: usize, most: usize) -> String {
    let end = format!(" (id {id})");
    let (room, most) = (room - end.chars().count(), most - end.chars().count());
    let mut message = one_line(message);
    for shorter in [
        without_context,
        without_uid,
        without_repetition,
        without_network,
        with_short_context,
    ] {
        if message.chars().count() > room {
            message = shorter(&message, pod);
        }
    }
    format!("{}{end}", of_all(&message, most))
}

/// Removes the context when the text after it names the pod, too.
fn without_context(message: &str, pod: &str) -> String {
    let context = format!("error configuring pod [{pod}] networking: ");
    if message.matches(pod).count() > 1 {
        message.replacen(&context, "", 1)
    } else {
        message.to_owned()
    }
}

/// Removes the uid from `[namespace/name/uid:network]`.
fn without_uid(message: &str, pod: &str) -> String {
    between(message, &format!("[{pod}/"), ":", 0, &format!("[{pod}:"))
}

/// Removes every `[namespace/name:network]: ` but the first.
fn without_repetition(message: &str, pod: &str) -> String {
    between(message, &format!("[{pod}:"), "]: ", 1, "")
}

/// Removes the network of a plugin: the text has named it already.
fn without_network(message: &str, _pod: &str) -> String {
    between(message, " of network \"", "\" failed", 0, " failed")
}

/// Shortens the context to the pod's name.
fn with_short_context(message: &str, pod: &str) -> String {
    let context = format!("error configuring pod [{pod}] networking: ");
    message.replacen(&context, &format!("pod {pod}: "), 1)
}

/// Replaces texts between `begin` and `end` by `by`, but for the first `spared` ones.
fn between(text: &str, begin: &str, end: &str, spared: usize, by: &str) -> String {
    let mut out = String::new();
    let (mut rest, mut seen) = (text, 0);
    while let Some((before, after)) = rest.split_once(begin) {
        let Some((inside, behind)) = after.split_once(end) else {
            break;
        };
        out.push_str(before);
        if seen < spared {
            out.extend([begin, inside, end]);
        } else {
            out.push_str(by);
        }
        (rest, seen) = (behind, seen + 1);
    }
    out + rest
}

/// Cuts a message to `room` characters; each of several errors in it gets an equal share.
fn of_all(message: &str, room: usize) -> String {
    const SEVERAL: &str = "errors: ";
    const BETWEEN: &str = " / ";
    let errors: Vec<_> = match message.strip_prefix(SEVERAL) {
        Some(errors) if message.chars().count() > room => errors.split(BETWEEN).collect(),
        _ => return fitted(message, room),
    };
    let each = (room - SEVERAL.len()) / errors.len();
    if each < 40 {
        return fitted(message, room);
    }
    let each = each - BETWEEN.len();
    let parts: Vec<_> = errors.iter().map(|error| fitted(error, each)).collect();
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
    use super::*;

    const POD: &str = "shop/cart-5d8f7c9b4-x2k8q";
    const HEAD: &str = "error configuring pod [shop/cart-5d8f7c9b4-x2k8q] networking: [shop/cart-5d8f7c9b4-x2k8q/36a0c1f2-0000-4000-8000-000000000000:storage]: error adding container to network \"storage\": ";

    #[test]
    fn short_error_is_unchanged() {
        let complete = CniError::new(11, "no luck").with_details("refused");
        let short = error(&complete, "0a0b0c0d", POD);
        assert_eq!(short.to_string(), "no luck (id 0a0b0c0d); refused");
        assert_eq!(short.code, 11);
    }

    #[test]
    fn long_error_keeps_pod_network_cause_and_hint() {
        let cause = format!(
            "no address is left in the range{}; enlarge the range",
            " of many".repeat(100)
        );
        let long = CniError::new(11, format!("{HEAD}{cause}")).with_details("x".repeat(500));
        let short = error(&long, "0a0b0c0d", POD);
        let event_text = format!("{OF_SHIM}{short}");
        assert!(event_text.chars().count() < LIMIT, "{event_text}");
        for word in [
            POD,
            "storage",
            "no address",
            "enlarge the range (id 0a0b0c0d)",
        ] {
            assert!(event_text.contains(word), "no {word} in {event_text}");
        }
        assert!(event(&long.msg, "0a0b0c0d", POD).chars().count() < LIMIT);
    }

    #[test]
    fn full_event_is_cut_at_the_limit_of_the_api_server() {
        let left = format!("{HEAD}{}; free them by hand", "net1 10.0.0.1 ".repeat(20));
        let full = event_in_full(&left, "0a0b0c0d", POD);
        assert!(
            full.chars().count() > LIMIT && !full.contains('…'),
            "{full}"
        );
        let longer = event_in_full(&left.repeat(5), "0a0b0c0d", POD);
        assert!(longer.chars().count() < FULL_LIMIT, "{longer}");
    }

    #[test]
    fn long_path_is_kept_by_a_shorter_context() {
        let error = CniError::new(
            11,
            format!(
                "error configuring pod [{POD}] networking: failed to get clusterNetwork /etc/cni/multus/net.d: /etc/cni/multus/net.d/05-broken.conf has neither a \"type\" nor a list of \"plugins\": correct it, or take it away"
            ),
        );
        let short = super::error(&error, "0a0b0c0d", POD).msg;
        assert!(short.starts_with(&format!("pod {POD}: failed")), "{short}");
        assert!(short.contains("/05-broken.conf has neither"), "{short}");
        assert!(!short.contains('…'), "{short}");
    }

    #[test]
    fn several_errors_are_all_named() {
        let one = |network: &str| {
            format!(
                "[{POD}/36a0c1f2-0000-4000-8000-000000000000:{network}]: error removing container from network \"{network}\": plugin type=\"bridge\" of network \"{network}\" failed (DEL): {network} stays"
            )
        };
        for (networks, expected) in [(&["a", "b"][..], 2), (&["a", "b", "c", "d"], 4)] {
            let all: Vec<_> = networks.iter().map(|network| one(network)).collect();
            let error = CniError::new(7, format!("errors: {}", all.join(" / ")));
            let short = super::error(&error, "0a0b0c0d", POD).msg;
            let named = networks
                .iter()
                .filter(|network| short.contains(&format!("{network} stays")));
            assert_eq!(named.count(), expected, "{short}");
            assert_eq!(short.matches(POD).count(), 1, "{short}");
            assert!(short.chars().count() + OF_SHIM.len() < LIMIT, "{short}");
        }
    }

    #[test]
    fn every_length_fits_the_limit_in_one_line() {
        for length in 0..700 {
            let text = "ä\n".repeat(length);
            let short = error(&CniError::new(1, text.clone()), "0a0b0c0d", POD);
            assert!(format!("{OF_SHIM}{short}").chars().count() < LIMIT);
            assert!(!short.msg.contains('\n') && short.msg.ends_with("(id 0a0b0c0d)"));
        }
    }

    #[test]
    fn same_failure_has_the_same_id() {
        let at = |container: &str, cause: &str| {
            let error = CniError::new(7, format!("{cause} for {container}"));
            id(POD, &error, &[container, ""])
        };
        assert_eq!(at("c1", "no luck"), at("c2", "no luck"));
        assert_ne!(at("c1", "no luck"), at("c1", "much luck"));
        let other = CniError::new(7, "no luck for ");
        assert_ne!(at("c1", "no luck"), id("shop/other", &other, &[]));
        assert_eq!(at("c1", "no luck").len(), 8);
    }
}
