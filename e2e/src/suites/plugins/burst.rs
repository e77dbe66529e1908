//! Many ADDs of host-local at once, by both sides on the same files: no address is assigned twice.

use std::collections::BTreeSet;

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use super::{PluginsFixture, sandbox};
use crate::{report::Report, sh};

const COUNT: usize = 64;
/// Starts the calls and prints their results; the arguments are the directories of both sides, in turn for each call.
const SCRIPT: &str = "\
export CNI_COMMAND=ADD CNI_NETNS=/run/netns/none CNI_IFNAME=eth0
for number in $(seq $COUNT); do
  CNI_CONTAINERID=container-$number CNI_PATH=$1 \"$1/host-local\" <<EOF > /tmp/$number &
$CONFIG
EOF
  set -- \"$2\" \"$1\"
done
wait
cat /tmp/[0-9]*
";

pub(super) fn run(fixture: &PluginsFixture<'_>, report: &mut Report) {
    let sides = [
        ("ours", [&fixture.ours, &fixture.ours]),
        (
            "ours and the reference's",
            [&fixture.ours, &fixture.reference],
        ),
    ];
    for (name, directories) in sides {
        let name = format!("burst of {COUNT} ADDs of host-local: {name}");
        if !fixture.selects(&name) {
            continue;
        }
        let _ = report.check(&name, || {
            let config = json!({
                "cniVersion": "1.1.0", "name": "net", "type": "host-local",
                "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.1.2.0/25"}], [{"subnet": "fd00::/120"}]]},
            });
            let mut command = sandbox::command("sh");
            command
                .args(["-ec", SCRIPT, "burst"])
                .args(directories)
                .env("COUNT", COUNT.to_string())
                .env("CONFIG", config.to_string());
            let printed = sh::run(&mut command)?;
            let mut addresses = BTreeSet::new();
            for result in serde_json::Deserializer::from_str(&printed).into_iter::<Value>() {
                let result = result.context("a result is not JSON")?;
                for address in result["ips"].as_array().into_iter().flatten() {
                    let address = address["address"].to_string();
                    ensure!(addresses.insert(address.clone()), "{address} is assigned twice");
                }
            }
            let count = addresses.len();
            ensure!(count == 2 * COUNT, "{COUNT} containers have {count} addresses of two families: {printed}");
            Ok(())
        });
    }
}
