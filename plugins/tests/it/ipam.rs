//! IPAM plugins that are programs of others.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::fs::PermissionsExt as _;

use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::json;

use crate::plugin::start_with;

/// Says that it runs, and, unless it is killed, that it was not.
const PROGRAM: &str = "\
#!/bin/sh
exec 9> \"${0%/*}/fifo\"
echo started >&9
sleep 20
echo survived >&9
";

#[test]
fn ipam_plugin_ends_with_the_process_group_of_its_plugin() {
    let dir = tempfile::tempdir().unwrap();
    let (program, fifo) = (dir.path().join("slow"), dir.path().join("fifo"));
    fs::write(&program, PROGRAM).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    mknodat(CWD, &fifo, FileType::Fifo, Mode::RWXU, 0).unwrap();
    let config =
        json!({"cniVersion": "1.1.0", "name": "net", "type": "bridge", "ipam": {"type": "slow"}});
    let env = [("CNI_PATH", dir.path().to_str().unwrap())];
    let mut plugin = start_with("bridge", "STATUS", "", &config, &env);
    let mut words = BufReader::new(File::open(fifo).unwrap());
    let mut word = String::new();
    words.read_line(&mut word).unwrap();
    assert_eq!(word, "started\n");

    kill_process_group(Pid::from_child(&plugin), Signal::KILL).unwrap();
    plugin.wait().unwrap();
    let mut rest = String::new();
    // Returns once no process has the other end.
    words.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "");
}
