//! The runtime's call: environment and stdin, validated before anything else happens.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use api::options;
use cni::env::{Command, ContainerId, IfName, check_network_name};
use cni::{CniError, Version};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use serde_json::{Map, Value};

use crate::log::{Level, Log};

/// The most bytes of a network configuration.
const MAX_STDIN: u64 = 8 << 20;
/// The time in which the runtime has to close the shim's stdin, so that the shim cannot wait for ever.
const STDIN_TIME: Duration = Duration::from_secs(30);

/// The variables of the CNI specification as the runtime set them. Others may be secrets, and neither the daemon nor a replay uses them.
pub(crate) struct Variables(pub(crate) Vec<(String, String)>);

impl Variables {
    /// Returns the value; empty if the variable is not set.
    pub(crate) fn get(&self, name: &str) -> &str {
        let found = self.0.iter().rev().find(|(key, _)| key == name);
        found.map_or("", |(_, value)| value)
    }
}

/// The validated environment of a call.
pub(crate) struct Environment {
    pub(crate) command: Command,
    attachment: Option<(ContainerId, IfName)>,
    variables: Variables,
}

/// A validated call.
pub(crate) struct CniCall {
    pub(crate) command: Command,
    /// The container and the interface; `None` for verbs that concern no attachment.
    pub(crate) attachment: Option<(ContainerId, IfName)>,
    pub(crate) variables: Variables,
    /// The network configuration, byte for byte.
    pub(crate) stdin: Vec<u8>,
    pub(crate) config: Map<String, Value>,
    /// The version of the printed result.
    pub(crate) version: Version,
    pub(crate) socket: PathBuf,
    pub(crate) cni_dir: PathBuf,
    pub(crate) log: Log,
}

impl Environment {
    /// Validates the variables; `None` if this is no CNI call. One error names everything that is invalid.
    pub(crate) fn read(
        all: impl Iterator<Item = (OsString, OsString)>,
    ) -> Result<Option<Self>, CniError> {
        let mut wrong = Vec::new();
        let mut variables = Variables(Vec::new());
        for (key, value) in all {
            let Some(key) = key.into_string().ok().filter(|key| key.starts_with("CNI_")) else {
                continue;
            };
            match value.into_string() {
                Ok(value) => variables.0.push((key, value)),
                Err(_) => wrong.push(format!("{key} is not UTF-8")),
            }
        }
        let invalid = |msg: String| CniError::new(CniError::INVALID_ENVIRONMENT, msg);
        let command: Command = match variables.get("CNI_COMMAND") {
            "" if wrong.is_empty() => return Ok(None),
            "" => return Err(invalid(wrong.join("; "))),
            command => command
                .parse()
                .map_err(|error: cni::env::EnvError| invalid(error.to_string()))?,
        };
        let value = |name: &str| variables.get(name);
        let missing: Vec<_> = command
            .required_variables()
            .iter()
            .copied()
            .filter(|name| value(name).is_empty())
            .collect();
        if !missing.is_empty() {
            wrong.push(format!(
                "required env variables [{}] missing",
                missing.join(",")
            ));
        }
        let mut attachment = None;
        if command.is_about_attachment() {
            let (id, ifname) = (
                ContainerId::parse(value("CNI_CONTAINERID")),
                IfName::parse(value("CNI_IFNAME")),
            );
            let errors = [id.as_ref().err(), ifname.as_ref().err()];
            let names = ["CNI_CONTAINERID", "CNI_IFNAME"];
            wrong.extend(
                names
                    .into_iter()
                    .zip(errors)
                    .filter(|(name, _)| !value(name).is_empty())
                    .filter_map(|(_, error)| error)
                    .map(ToString::to_string),
            );
            attachment = id.ok().zip(ifname.ok());
        }
        if wrong.is_empty() {
            Ok(Some(Self {
                command,
                attachment,
                variables,
            }))
        } else {
            Err(invalid(wrong.join("; ")))
        }
    }

    /// Adds and validates the network configuration, whose version has to be one of `versions`.
    pub(crate) fn with_config(
        self,
        stdin: Vec<u8>,
        versions: &[Version],
    ) -> Result<CniCall, CniError> {
        let config = match serde_json::from_slice(&stdin) {
            Ok(Value::Object(config)) => config,
            Ok(_) => {
                return Err(CniError::new(
                    CniError::DECODING_FAILURE,
                    "network configuration on stdin is not a JSON object",
                ));
            }
            Err(error) => {
                return Err(CniError::new(
                    CniError::DECODING_FAILURE,
                    format!("network configuration on stdin is not JSON: {error}"),
                ));
            }
        };
        let name = text(&config, "name")?.unwrap_or_default();
        if name.is_empty() {
            return Err(invalid_config("network configuration on stdin has no name"));
        }
        check_network_name(name).map_err(|error| invalid_config(error.to_string()))?;
        let version = version(
            text(&config, "cniVersion")?.unwrap_or_default(),
            self.command,
            versions,
        )?;
        let socket_dir = text(&config, "daemonSocketDir")?
            .filter(|dir| !dir.is_empty())
            .unwrap_or(api::DEFAULT_SOCKET_DIR);
        let cni_dir = text(&config, "cniDir")?
            .filter(|dir| !dir.is_empty())
            .unwrap_or(api::DEFAULT_CNI_DIR);
        for (key, dir) in [("daemonSocketDir", socket_dir), ("cniDir", cni_dir)] {
            if !dir.starts_with('/') {
                return Err(invalid_config(format!(
                    "{key} {dir:?} is not an absolute path"
                )));
            }
        }
        let log = Log {
            file: text(&config, "logFile")?
                .filter(|file| !file.is_empty())
                .map(PathBuf::from),
            to_stderr: options::get(&config, "logToStderr")
                .and_then(Value::as_bool)
                .unwrap_or(false),
            level: Level::parse(text(&config, "logLevel")?.unwrap_or_default()),
        };
        Ok(CniCall {
            command: self.command,
            attachment: self.attachment,
            variables: self.variables,
            version,
            socket: Path::new(socket_dir).join(api::SOCKET_NAME),
            cni_dir: PathBuf::from(cni_dir),
            log,
            config,
            stdin,
        })
    }
}

impl CniCall {
    /// Returns `CNI_NETNS`; empty if it is not set.
    pub(crate) fn netns(&self) -> &str {
        self.variables.get("CNI_NETNS")
    }
}

/// Reads stdin to its end.
pub(crate) fn read_stdin() -> Result<Vec<u8>, CniError> {
    let failed = |reason: String| {
        CniError::new(
            CniError::IO_FAILURE,
            format!("cannot read the network configuration from stdin: {reason}"),
        )
    };
    let deadline = Instant::now() + STDIN_TIME;
    let stdin = rustix::stdio::stdin();
    let mut bytes = Vec::new();
    let mut buffer = [0; 16 << 10];
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let left =
            Timespec::try_from(left).expect("half a minute is within the range of the clock");
        match poll(&mut [PollFd::new(&stdin, PollFlags::IN)], Some(&left)) {
            Ok(0) => return Err(failed("it was not closed in time".to_owned())),
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(failed(error.to_string())),
        }
        match rustix::io::read(stdin, &mut buffer) {
            Ok(0) => return Ok(bytes),
            Ok(count) => bytes.extend_from_slice(&buffer[..count]),
            Err(Errno::INTR) => {}
            Err(error) => return Err(failed(error.to_string())),
        }
        if bytes.len() as u64 > MAX_STDIN {
            return Err(failed(format!("it is longer than {MAX_STDIN} bytes")));
        }
    }
}

fn version(stated: &str, command: Command, supported: &[Version]) -> Result<Version, CniError> {
    let list = || {
        supported
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .join(", ")
    };
    let incompatible = |details: String| {
        CniError::new(CniError::INCOMPATIBLE_VERSION, "incompatible CNI versions")
            .with_details(details)
    };
    // Absent, or exactly as in the list: other plugins of the pod do not read short forms such as `1.0` either.
    let is_listed = |version: &Version| stated.is_empty() || version.to_string() == stated;
    let version = Version::parse(stated)
        .ok()
        .filter(|version| supported.contains(version) && is_listed(version));
    let version = version
        .ok_or_else(|| incompatible(format!("config is {stated:?}, plugin supports {}", list())))?;
    let first = match command {
        Command::Check => Version::V0_4_0,
        Command::Gc | Command::Status => Version::V1_1_0,
        _ => return Ok(version),
    };
    if version < first {
        Err(incompatible(format!(
            "config is {version}, {command} needs {first} or newer"
        )))
    } else {
        Ok(version)
    }
}

fn text<'a>(config: &'a Map<String, Value>, key: &str) -> Result<Option<&'a str>, CniError> {
    let Some(value) = options::get(config, key) else {
        return Ok(None);
    };
    value.as_str().map(Some).ok_or_else(|| {
        invalid_config(format!(
            "{key} in the network configuration is not a string"
        ))
    })
}

fn invalid_config(msg: impl Into<String>) -> CniError {
    CniError::new(CniError::INVALID_NETWORK_CONFIG, msg)
}
