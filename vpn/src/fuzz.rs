//! Fuzz targets of the language of `--vpn-auth` and of the kernel's objects. `docs/contributing/testing.md` says how they run.
//!
//! A target returns whether it accepted its input, and panics when an accepted input breaks an invariant of its reader.

use crate::Auth;
pub use crate::{kernel::fuzz::netlink, wireguard::fuzz::wireguard};

/// A text of `--vpn-auth`, whose keys contain `SECRET`: no error and no warning does.
pub fn auth(input: &[u8]) -> bool {
    match Auth::parse(input) {
        Err(error) => {
            assert!(!format!("{error}{error:?}").contains("SECRET"), "{error}");
            false
        }
        Ok(auth) => {
            let joined = auth.warnings.join("");
            assert!(!joined.contains("SECRET"), "{joined}");
            assert!(!format!("{:?}", auth.key).contains("SECRET"));
            let forbidden = ["auth-key", "authkey", "reset", "json", "login-server"];
            for word in auth.extra_args.iter().filter(|word| word.starts_with('-')) {
                let name = word.split('=').next().unwrap_or_default();
                assert!(!forbidden.contains(&name.trim_start_matches('-')), "{word}");
            }
            true
        }
    }
}

#[cfg(test)]
mod tests {
    use testkit::fuzz::corpus::run;

    #[test]
    fn auth() {
        run("vpn_auth", super::auth);
    }

    #[test]
    fn wireguard() {
        run("vpn_wireguard", super::wireguard);
    }

    #[test]
    fn netlink() {
        run("vpn_netlink", super::netlink);
    }
}
