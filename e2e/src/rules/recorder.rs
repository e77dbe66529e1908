//! The recording plugin: this program under the name `recorder`. It records every call and answers as a case wants.
//!
//! The directory `recorder.d` next to it controls it: `answers/<network>.<VERB>.json` holds an answer, and `calls/<container>` gets
//! one line for each call.

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

/// The plugin's name. Programs whose names begin with it are recording plugins as well.
pub(crate) const NAME: &str = "recorder";
/// The directory next to it.
pub(crate) const DIRECTORY: &str = "recorder.d";
/// The address in its result unless its configuration has another.
pub(crate) const ADDRESS: &str = "10.66.0.2/24";
/// The file of calls that concern no container.
pub(crate) const NO_CONTAINER: &str = "no-container";

/// How long a call waits for a file.
const WAIT: Duration = Duration::from_mins(1);

/// Returns the path of this program if it was started as the plugin.
pub(crate) fn program() -> Option<PathBuf> {
    let program = std::env::current_exe().ok()?;
    let name = program.file_name()?.to_str()?;
    name.starts_with(NAME).then_some(program)
}

pub(crate) fn run(program: &Path) -> anyhow::Result<ExitCode> {
    let env: BTreeMap<String, String> = std::env::vars().collect();
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text)?;
    let stdin: Value = serde_json::from_str(&text).unwrap_or(Value::Null);
    let variable = |name: &str| env.get(name).cloned().unwrap_or_default();
    let (verb, container) = (variable("CNI_COMMAND"), variable("CNI_CONTAINERID"));
    let directory = program.with_file_name(DIRECTORY);
    record(
        &directory,
        &container,
        &json!({"verb": verb, "program": program, "env": env, "stdin": stdin, "text": text}),
    )?;
    let network = stdin["name"].as_str().unwrap_or_default();
    let file = directory
        .join("answers")
        .join(format!("{network}.{verb}.json"));
    let answer: Value = match fs::read(&file) {
        Ok(bytes) => serde_json::from_slice(&bytes).with_context(|| file.display().to_string())?,
        Err(_) => json!({}),
    };
    if let Some(file) = answer["wait_for"].as_str() {
        wait(Path::new(file))?;
    }
    if let (Some(file), info @ Value::Object(_)) = (
        stdin["runtimeConfig"]["CNIDeviceInfoFile"].as_str(),
        &answer["device_info"],
    ) {
        let directory = Path::new(file).parent().context("a file has a directory")?;
        fs::create_dir_all(directory)?;
        fs::write(file, info.to_string())?;
    }
    if answer["crash"] == true {
        return Ok(ExitCode::from(139));
    }
    let (document, code) = match (&answer["error"], &answer["print"], &answer["result"]) {
        (error @ Value::Object(_), ..) => (error.to_string(), ExitCode::FAILURE),
        (_, Value::String(text), _) => (text.clone(), ExitCode::SUCCESS),
        (_, _, result @ Value::Object(_)) => (result.to_string(), ExitCode::SUCCESS),
        _ => (default_answer(&verb, &stdin, &env), ExitCode::SUCCESS),
    };
    std::io::stdout().write_all(document.as_bytes())?;
    Ok(code)
}

fn record(directory: &Path, container: &str, call: &Value) -> anyhow::Result<()> {
    let calls = directory.join("calls");
    fs::create_dir_all(&calls)?;
    let name = if container.is_empty() {
        NO_CONTAINER
    } else {
        container
    };
    let mut file = File::options()
        .create(true)
        .append(true)
        .open(calls.join(name))?;
    // One write, so that lines of parallel calls do not mix.
    Ok(file.write_all(format!("{call}\n").as_bytes())?)
}

fn wait(file: &Path) -> anyhow::Result<()> {
    let end = Instant::now() + WAIT;
    while !file.exists() {
        anyhow::ensure!(Instant::now() < end, "{} did not appear", file.display());
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// Returns the answer where a case sets none. `ADD` in a chain returns the previous result, else one interface with one address; it
/// assigns addresses that `CNI_ARGS` requests, as many plugins do.
fn default_answer(verb: &str, stdin: &Value, env: &BTreeMap<String, String>) -> String {
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
    let requested = |key| cni::args::get(&args, key).filter(|value| !value.is_empty());
    let addresses: Vec<_> = requested("IP").unwrap_or(address).split(',').collect();
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
        "name": env.get("CNI_IFNAME"), "sandbox": env.get("CNI_NETNS"), "mac": requested("MAC").unwrap_or("02:00:00:00:00:01"),
    });
    let ips: Vec<_> = addresses.iter().map(ip).collect();
    json!({"cniVersion": version, "interfaces": [interface], "ips": ips, "dns": {}})
}
