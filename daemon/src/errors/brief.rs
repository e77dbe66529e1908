//! Errors as people read them in events: one line of bounded length that begins with whom it is about and ends with the cure, and an
//! id by which the log has all of it. The same failure has the same id, so that who looks for it finds every time it happened.

use cni::types::CniError;
use sha2::{Digest as _, Sha256};

/// The runtime's event holds fewer characters than this, the shim's words included.
pub const LIMIT: usize = 300;
/// The longest event that says what stays behind, where each address counts: the API server takes 1,024 bytes.
const FULL_LIMIT: usize = 900;
/// What the shim says before an error of the daemon.
const OF_SHIM: &str = "CmdCheck (shim): CNI request failed with status 400: ERRORED: ";
/// What stands for the part that is left out.
const GAP: &str = " … ";

/// The id of a failure: of whom it is about, and of its text without what is another at the next try.
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

/// The error for the runtime. `pod` is `namespace/name`; where the text is too long, what it says of the pod twice is said once.
/// Details that do not fit are in the log alone.
pub fn error(error: &CniError, id: &str, pod: &str) -> CniError {
    let room = LIMIT - 1 - OF_SHIM.chars().count();
    let msg = text(&error.msg, id, pod, room, room);
    let details = one_line(&error.details);
    let fits = msg.chars().count() + "; ".len() + details.chars().count() <= room;
    CniError::new(error.code, msg).with_details(if fits { details } else { String::new() })
}

/// The same for an event of our own.
pub fn event(message: &str, id: &str, pod: &str) -> String {
    text(message, id, pod, LIMIT - 1, LIMIT - 1)
}

/// The same where nothing is cut out unless the API server would refuse the event.
pub fn event_in_full(message: &str, id: &str, pod: &str) -> String {
    text(message, id, pod, LIMIT - 1, FULL_LIMIT - 1)
}

/// Leaves out what a message says twice until it has at most `room` characters, and cuts its middle out where it has more than `most`
/// all the same.
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

/// The context that says no more than what follows it.
fn without_context(message: &str, pod: &str) -> String {
    let context = format!("error configuring pod [{pod}] networking: ");
    if message.matches(pod).count() > 1 {
        message.replacen(&context, "", 1)
    } else {
        message.to_owned()
    }
}

/// `[namespace/name/uid:network]` without the uid.
fn without_uid(message: &str, pod: &str) -> String {
    between(message, &format!("[{pod}/"), ":", 0, &format!("[{pod}:"))
}

/// `[namespace/name:network]: ` once is enough.
fn without_repetition(message: &str, pod: &str) -> String {
    between(message, &format!("[{pod}:"), "]: ", 1, "")
}

/// A plugin's network is named by then.
fn without_network(message: &str, _pod: &str) -> String {
    between(message, " of network \"", "\" failed", 0, " failed")
}

/// The pod alone, without what is done to it.
fn with_short_context(message: &str, pod: &str) -> String {
    let context = format!("error configuring pod [{pod}] networking: ");
    message.replacen(&context, &format!("pod {pod}: "), 1)
}

/// Replaces what begins and ends so, but for the first few.
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

/// Of several errors in one, each gets its share.
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

/// Begin and end of a text that is too long: whom it is about stands first, what to do last.
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
    fn what_is_short_stays_as_it_is() {
        let short = CniError::new(11, "no luck").with_details("told to");
        let told = error(&short, "0a0b0c0d", POD);
        assert_eq!(told.to_string(), "no luck (id 0a0b0c0d); told to");
        assert_eq!(told.code, 11);
    }

    #[test]
    fn what_is_long_keeps_pod_network_cause_and_cure() {
        let cause = format!(
            "no address is left in the range{}; enlarge the range",
            " of many".repeat(100)
        );
        let long = CniError::new(11, format!("{HEAD}{cause}")).with_details("x".repeat(500));
        let told = error(&long, "0a0b0c0d", POD);
        let whole = format!("{OF_SHIM}{told}");
        assert!(whole.chars().count() < LIMIT, "{whole}");
        for word in [
            POD,
            "storage",
            "no address",
            "enlarge the range (id 0a0b0c0d)",
        ] {
            assert!(whole.contains(word), "no {word} in {whole}");
        }
        assert!(event(&long.msg, "0a0b0c0d", POD).chars().count() < LIMIT);
    }

    #[test]
    fn an_event_in_full_is_cut_where_the_api_server_would_refuse_it() {
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
    fn a_long_path_is_kept_whole_by_a_shorter_context() {
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
    fn of_several_errors_each_is_told() {
        let one = |network: &str| {
            format!(
                "[{POD}/36a0c1f2-0000-4000-8000-000000000000:{network}]: error removing container from network \"{network}\": plugin type=\"bridge\" of network \"{network}\" failed (DEL): {network} stays"
            )
        };
        for (networks, expected) in [(&["a", "b"][..], 2), (&["a", "b", "c", "d"], 4)] {
            let all: Vec<_> = networks.iter().map(|network| one(network)).collect();
            let error = CniError::new(7, format!("errors: {}", all.join(" / ")));
            let told = super::error(&error, "0a0b0c0d", POD).msg;
            let named = networks
                .iter()
                .filter(|network| told.contains(&format!("{network} stays")));
            assert_eq!(named.count(), expected, "{told}");
            assert_eq!(told.matches(POD).count(), 1, "{told}");
            assert!(told.chars().count() + OF_SHIM.len() < LIMIT, "{told}");
        }
    }

    #[test]
    fn no_text_is_too_long_or_torn() {
        for length in 0..700 {
            let text = "ä\n".repeat(length);
            let told = error(&CniError::new(1, text.clone()), "0a0b0c0d", POD);
            assert!(format!("{OF_SHIM}{told}").chars().count() < LIMIT);
            assert!(!told.msg.contains('\n') && told.msg.ends_with("(id 0a0b0c0d)"));
        }
    }

    #[test]
    fn the_same_failure_has_the_same_id() {
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
