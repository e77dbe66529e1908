//! The configuration files and flags of CRI-O and cri-dockerd, and the CNI directories that they result in.

use std::path::{Path, PathBuf};

use toml::{Table, Value};

use crate::{
    command_line::CommandLine,
    containerd::{ConfigError, ConfigFile, parse},
    dirs::ReportedDirs,
    root::Root,
};

const CONFIG: &str = "/etc/crio/crio.conf";
const CONFIG_DIR: &str = "/etc/crio/crio.conf.d";
const DEFAULT_BIN_DIR: &str = "/opt/cni/bin";
const DEFAULT_CONF_DIR: &str = "/etc/cni/net.d";
const MAX_FILE: u64 = 1 << 20;
const MAX_FILES: usize = 64;

/// Reads the configuration file and its drop-ins, the one that overrides all others last. Only a file that a flag names must exist.
pub fn gather(root: &Root, line: &CommandLine) -> Result<Vec<ConfigFile>, ConfigError> {
    let explicit = line.value(&["config", "c"]).map(PathBuf::from);
    let dir = line.value(&["config-dir", "d"]);
    let dir = dir.map_or_else(|| CONFIG_DIR.into(), PathBuf::from);
    for path in [explicit.as_ref(), Some(&dir)].into_iter().flatten() {
        if path.is_relative() {
            return Err(ConfigError::Relative { path: path.clone() });
        }
    }
    let mut paths = Vec::new();
    let main = explicit.clone().unwrap_or_else(|| CONFIG.into());
    if explicit.is_some() || root.exists(&main) {
        paths.push(main);
    }
    let names = root.list(&dir).unwrap_or_default();
    let drop_ins = names.into_iter().map(|name| dir.join(name));
    paths.extend(drop_ins.filter(|path| !root.is_dir(path)));
    if paths.len() > MAX_FILES {
        return Err(ConfigError::Bounds {
            path: dir,
            bound: format!("{MAX_FILES} files"),
        });
    }
    let read = |path: &Path| {
        Ok(ConfigFile {
            table: parse(path, &root.read(path, MAX_FILE)?)?,
            path: path.to_owned(),
        })
    };
    paths.iter().map(|path| read(path)).collect()
}

/// Returns the directories by files and flags: a later file overrides earlier ones key by key, and flags override files.
pub fn effective(files: &[ConfigFile], line: &CommandLine) -> ReportedDirs {
    let get = |key: &str| {
        files
            .iter()
            .rev()
            .find_map(|file| network(&file.table)?.get(key))
    };
    let text = |key: &str| Some(PathBuf::from(get(key)?.as_str()?));
    let listed = get("plugin_dirs").and_then(Value::as_array).map(|list| {
        let texts = list.iter().filter_map(Value::as_str);
        texts.map(PathBuf::from).collect::<Vec<_>>()
    });
    let mut bin_dirs = match line.value(&["cni-plugin-dir"]) {
        Some(list) => list.split(',').map(PathBuf::from).collect(),
        None => listed.unwrap_or_else(|| vec![DEFAULT_BIN_DIR.into()]),
    };
    // The key of older releases adds a directory to the list.
    bin_dirs.extend(text("plugin_dir").filter(|dir| !bin_dirs.contains(dir)));
    let flag = line.value(&["cni-config-dir"]).map(PathBuf::from);
    let conf_dir = flag.or_else(|| text("network_dir"));
    ReportedDirs {
        bin_dirs,
        conf_dir: Some(conf_dir.unwrap_or_else(|| DEFAULT_CONF_DIR.into())),
        ..ReportedDirs::default()
    }
    .only_absolute()
}

/// Returns the directories of cri-dockerd, which has flags and no files.
pub fn dockerd(line: &CommandLine) -> ReportedDirs {
    let bins = line.value(&["cni-bin-dir"]);
    let bins = bins.unwrap_or_else(|| DEFAULT_BIN_DIR.to_owned());
    let conf = line.value(&["cni-conf-dir"]);
    ReportedDirs {
        bin_dirs: bins.split(',').map(PathBuf::from).collect(),
        conf_dir: Some(conf.map_or_else(|| DEFAULT_CONF_DIR.into(), PathBuf::from)),
        ..ReportedDirs::default()
    }
    .only_absolute()
}

fn network(table: &Table) -> Option<&Table> {
    table.get("crio")?.get("network")?.as_table()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(args: &str) -> CommandLine {
        CommandLine::parse(args.replace(' ', "\0").as_bytes())
    }

    fn node(files: &[(&str, &str)]) -> (tempfile::TempDir, Root) {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::open(dir.path()).unwrap();
        root.make_dirs("/etc/crio/crio.conf.d/sub", 0o755).unwrap();
        for (path, text) in files {
            root.write_atomic(path, text.as_bytes(), 0o644).unwrap();
        }
        (dir, root)
    }

    fn check(files: &[(&str, &str)], args: &str) -> (Vec<PathBuf>, PathBuf) {
        let (_dir, root) = node(files);
        let line = line(args);
        let reported = effective(&gather(&root, &line).unwrap(), &line);
        (reported.bin_dirs, reported.conf_dir.unwrap())
    }

    #[test]
    fn drop_ins_override_files_and_flags_override_both() {
        let main = "[crio.network]\nnetwork_dir = \"/m/\"\nplugin_dirs = [\"/a/\", \"/b\"]\n";
        let drop_in = "[crio.network]\nnetwork_dir = \"/d\"\n";
        let (main, drop_in) = (
            ("/etc/crio/crio.conf", main),
            ("/etc/crio/crio.conf.d/10-x", drop_in),
        );
        let paths = |list: &[&str]| list.iter().map(PathBuf::from).collect::<Vec<_>>();
        let default = (paths(&["/opt/cni/bin"]), "/etc/cni/net.d".into());
        assert_eq!(check(&[], "crio"), default);
        assert_eq!(check(&[main], "crio"), (paths(&["/a", "/b"]), "/m".into()));
        assert_eq!(
            check(&[main, drop_in], "crio"),
            (paths(&["/a", "/b"]), "/d".into())
        );
        let args = "crio --cni-plugin-dir=/x,/y --cni-config-dir /z";
        assert_eq!(
            check(&[main, drop_in], args),
            (paths(&["/x", "/y"]), "/z".into())
        );
        let old = (
            "/etc/crio/crio.conf",
            "[crio.network]\nplugin_dir = \"/old\"\n",
        );
        assert_eq!(
            check(&[old], "crio"),
            (paths(&["/opt/cni/bin", "/old"]), "/etc/cni/net.d".into())
        );
    }

    #[test]
    fn explicit_file_must_exist_and_be_absolute() {
        let (_dir, root) = node(&[]);
        let error = gather(&root, &line("crio -c /none")).unwrap_err();
        assert!(error.to_string().contains("/none"), "{error}");
        let error = gather(&root, &line("crio -d drop.d")).unwrap_err();
        assert!(error.to_string().contains("relative"), "{error}");
    }

    #[test]
    fn dockerd_has_only_flags() {
        let reported = dockerd(&line("cri-dockerd --cni-bin-dir /a,/b --cni-conf-dir=/c"));
        assert_eq!(reported.bin_dirs, [Path::new("/a"), Path::new("/b")]);
        assert_eq!(reported.conf_dir.as_deref(), Some(Path::new("/c")));
        assert!(dockerd(&line("cri-dockerd")).is_complete());
    }
}
