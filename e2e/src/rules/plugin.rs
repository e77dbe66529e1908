//! A plugin that writes down every call and answers as told: this very program, under the name that follows.
//!
//! It is driven by the folder `recorder.d` beside it: `answers/<network>.<VERB>.json` says what to do, `calls/<container>` gets one line per call.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{Read as _, Write as _},
    path::{Path, PathBuf},
    process::ExitCode,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use serde_json::{Value, json};

/// The plugin's name; names that begin with it are plugins of the same kind.
pub(crate) const NAME: &str = "recorder";
/// The folder beside it.
pub(crate) const FOLDER: &str = "recorder.d";
/// The address that it gives unless its configuration has another.
pub(crate) const ADDRESS: &str = "10.66.0.2/24";
/// The file of calls that are about no container.
pub(crate) const NOBODY: &str = "nobody";

/// Longest that a call waits for a file.
const PATIENCE: Duration = Duration::from_mins(1);

/// The place of this program, if it was started as the plugin.
pub(crate) fn place() -> Option<PathBuf> {
    let program = std::env::current_exe().ok()?;
    let name = program.file_name()?.to_str()?;
    name.starts_with(NAME).then_some(program)
}

/// One call.
pub(crate) fn run(program: &Path) -> anyhow::Result<ExitCode> {
    let env: BTreeMap<String, String> = std::env::vars().collect();
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text)?;
    let stdin: Value = serde_json::from_str(&text).unwrap_or(Value::Null);
    let variable = |name: &str| env.get(name).cloned().unwrap_or_default();
    let (verb, container) = (variable("CNI_COMMAND"), variable("CNI_CONTAINERID"));
    let folder = program.with_file_name(FOLDER);
    record(
        &folder,
        &container,
        &json!({"verb": verb, "program": program, "env": env, "stdin": stdin, "text": text}),
    )?;
    let network = stdin["name"].as_str().unwrap_or_default();
    let told = folder
        .join("answers")
        .join(format!("{network}.{verb}.json"));
    let answer: Value = match fs::read(&told) {
        Ok(bytes) => serde_json::from_slice(&bytes).with_context(|| told.display().to_string())?,
        Err(_) => json!({}),
    };
    if let Some(file) = answer["wait_for"].as_str() {
        wait(Path::new(file))?;
    }
    if let (Some(file), info @ Value::Object(_)) = (
        stdin["runtimeConfig"]["CNIDeviceInfoFile"].as_str(),
        &answer["device_info"],
    ) {
        let folder = Path::new(file)
            .parent()
            .context("a file lies in a folder")?;
        fs::create_dir_all(folder)?;
        fs::write(file, info.to_string())?;
    }
    if answer["crash"] == true {
        return Ok(ExitCode::from(139));
    }
    let (document, code) = match (&answer["error"], &answer["print"], &answer["result"]) {
        (error @ Value::Object(_), ..) => (error.to_string(), ExitCode::FAILURE),
        (_, Value::String(text), _) => (text.clone(), ExitCode::SUCCESS),
        (_, _, result @ Value::Object(_)) => (result.to_string(), ExitCode::SUCCESS),
        _ => (usual(&verb, &stdin, &env), ExitCode::SUCCESS),
    };
    std::io::stdout().write_all(document.as_bytes())?;
    Ok(code)
}

fn record(folder: &Path, container: &str, call: &Value) -> anyhow::Result<()> {
    let calls = folder.join("calls");
    fs::create_dir_all(&calls)?;
    let name = if container.is_empty() {
        NOBODY
    } else {
        container
    };
    let mut file = File::options()
        .create(true)
        .append(true)
        .open(calls.join(name))?;
    // One write, so that calls side by side do not mix.
    Ok(file.write_all(format!("{call}\n").as_bytes())?)
}

fn wait(file: &Path) -> anyhow::Result<()> {
    let end = Instant::now() + PATIENCE;
    while !file.exists() {
        anyhow::ensure!(Instant::now() < end, "{} did not come", file.display());
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// What a plugin says that nobody told anything: in a chain what came before, else one interface with one address. Addresses that are
/// asked for in `CNI_ARGS` it gives, as many plugins do.
fn usual(verb: &str, stdin: &Value, env: &BTreeMap<String, String>) -> String {
    let version = stdin["cniVersion"].as_str().unwrap_or("0.1.0");
    match verb {
        "VERSION" => json!({"cniVersion": "1.1.0", "supportedVersions": ["0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"]}).to_string(),
        "ADD" => match &stdin["prevResult"] {
            result @ Value::Object(_) => result.to_string(),
            _ => result(version, stdin["address"].as_str().unwrap_or(ADDRESS), env).to_string(),
        },
        _ => String::new(),
    }
}

fn result(version: &str, address: &str, env: &BTreeMap<String, String>) -> Value {
    let args = cni::args::parse(env.get("CNI_ARGS").map_or("", String::as_str));
    let asked = |key| cni::args::get(&args, key).filter(|value| !value.is_empty());
    let addresses: Vec<_> = asked("IP").unwrap_or(address).split(',').collect();
    if version.starts_with("0.1") || version.starts_with("0.2") {
        return json!({"cniVersion": version, "ip4": {"ip": addresses[0]}});
    }
    let ip = |address: &&str| {
        let mut ip = json!({"address": address, "interface": 0});
        if version.starts_with('0') {
            ip["version"] = json!(if address.contains(':') { "6" } else { "4" });
        }
        ip
    };
    let interface = json!({
        "name": env.get("CNI_IFNAME"), "sandbox": env.get("CNI_NETNS"), "mac": asked("MAC").unwrap_or("02:00:00:00:00:01"),
    });
    let ips: Vec<_> = addresses.iter().map(ip).collect();
    json!({"cniVersion": version, "interfaces": [interface], "ips": ips, "dns": {}})
}
