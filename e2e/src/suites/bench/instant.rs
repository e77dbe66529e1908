//! `bench-plugin`: a CNI plugin that answers immediately and does nothing, so that measurements are of its callers.
//!
//! It uses only the standard library, because suite `bench` builds this file alone with rustc, as a static program.

use std::{
    env,
    io::{self, Read as _, Write as _},
};

fn main() -> io::Result<()> {
    let mut config = String::new();
    io::stdin().read_to_string(&mut config)?;
    let variable = |name| env::var(name).unwrap_or_default();
    let answer = match variable("CNI_COMMAND").as_str() {
        "ADD" => format!(
            r#"{{"cniVersion":"{}","interfaces":[{{"name":"{}","mac":"02:00:00:00:00:01","sandbox":"{}"}}],"ips":[{{"address":"10.66.0.2/24","interface":0}}],"dns":{{}}}}"#,
            version(&config).unwrap_or("1.0.0"),
            variable("CNI_IFNAME"),
            variable("CNI_NETNS"),
        ),
        "VERSION" => r#"{"cniVersion":"1.1.0","supportedVersions":["1.0.0","1.1.0"]}"#.to_owned(),
        _ => String::new(),
    };
    io::stdout().write_all(answer.as_bytes())
}

/// Returns the value of `cniVersion`.
fn version(config: &str) -> Option<&str> {
    let (_, rest) = config.split_once("\"cniVersion\"")?;
    rest.split('"').nth(1)
}
