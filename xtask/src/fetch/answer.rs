//! What a server says of what it sends: the head of its last answer.

/// The parts of a head that decide.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) status: Option<u16>,
    /// Bytes that follow.
    pub(super) length: Option<u64>,
    /// The offset of the first of them.
    first: Option<u64>,
}

/// What to do with the bytes that follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Plan {
    Append,
    /// It is all of the file, whatever was asked for.
    Begin,
    /// Another part of the file than the one that was asked for.
    Refuse,
}

impl Answer {
    /// Of several heads, as after redirects, the last one counts.
    pub(super) fn read(heads: &[u8]) -> Self {
        let mut answer = Self::default();
        for line in String::from_utf8_lossy(heads).lines() {
            if line.starts_with("HTTP/") {
                let status = line.split_whitespace().nth(1);
                answer = Self {
                    status: status.and_then(|status| status.parse().ok()),
                    ..Self::default()
                };
            }
            let Some((name, value)) = line.split_once(':') else {
                continue;
            };
            let value = value.trim();
            match name.to_ascii_lowercase().as_str() {
                "content-length" => answer.length = value.parse().ok(),
                "content-range" => answer.first = first(value),
                _ => {}
            }
        }
        answer
    }

    /// What follows from having asked for the bytes from `begun` on.
    pub(super) fn plan(&self, begun: u64) -> Plan {
        match self.status {
            Some(206) if self.first == Some(begun) => Plan::Append,
            Some(200) => Plan::Begin,
            _ => Plan::Refuse,
        }
    }
}

/// The first offset of `bytes 5-22/23`.
fn first(range: &str) -> Option<u64> {
    let range = range.strip_prefix("bytes")?.trim_start();
    range.split_once('-')?.0.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(heads: &str, begun: u64, expected: Plan) {
        assert_eq!(
            Answer::read(heads.as_bytes()).plan(begun),
            expected,
            "{heads}"
        );
    }

    #[test]
    fn bytes_are_appended_where_they_belong() {
        let range = "HTTP/2 206 \r\ncontent-range: bytes 5-22/23\r\nContent-Length: 18\r\n\r\n";
        check(range, 5, Plan::Append);
        check(range, 4, Plan::Refuse);
        check(range, 0, Plan::Refuse);
        check("HTTP/1.1 206 Partial Content\r\n\r\n", 5, Plan::Refuse);
        check("HTTP/1.1 200 OK\r\n\r\n", 5, Plan::Begin);
        check("HTTP/1.1 204 No Content\r\n\r\n", 0, Plan::Refuse);
        check("", 0, Plan::Refuse);
        assert_eq!(Answer::read(range.as_bytes()).length, Some(18));
    }

    #[test]
    fn the_last_head_counts() {
        let heads = "HTTP/1.1 302 Found\r\nContent-Length: 3\r\nLocation: /x\r\n\r\nHTTP/1.1 200 OK\r\n\r\n";
        let answer = Answer::read(heads.as_bytes());
        assert_eq!((answer.status, answer.length), (Some(200), None));
    }
}
