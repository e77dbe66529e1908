//! `multus-daemon uninstall`: takes our configuration and our shim off the node; leases and state of running pods stay.

use std::io::Write;

use node::{
    dirs::Overrides,
    discover::{Question, discover},
    install,
};

use super::Setting;
use crate::{app, certificate, config_manager, reconcile::dhcp, state};

/// Removes the configuration first, then what was installed. What cannot be detached before stops nothing, but fails in the end.
pub async fn run(setting: &Setting, detach: bool) -> anyhow::Result<()> {
    let (config, root) = (setting.config()?, setting.root()?);
    let mut undone = Vec::new();
    if detach {
        let identity = setting.identity.clone();
        let left = app::hand_over(setting.config()?, setting.root()?, identity).await;
        match left {
            Ok(left) => {
                let mut err = std::io::stderr();
                for one in &left.kept {
                    writeln!(err, "{}", one.sentence())?;
                }
                undone.extend(left.errors.iter().map(ToString::to_string));
            }
            Err(error) => undone.push(format!("{error:#}")),
        }
    }
    let dir = if config.conf_dir.is_some() || config_manager::any(&root) {
        config.conf_dir.clone()
    } else {
        // What was written is recorded. Without a record, ours is told by its name in the runtime's directory.
        let question = Question {
            socket: config.cri_socket.clone(),
            pod_uid: setting.identity.pod_uid.clone(),
            overrides: Overrides::default(),
        };
        let report = discover(&root, &question).await;
        let problem = report
            .problem
            .unwrap_or_else(|| "the runtime did not tell its directories".to_owned());
        let dirs = report.dirs.ok_or_else(|| {
            anyhow::anyhow!(
                "{problem}; set cniConfigDir in {}",
                setting.config.display()
            )
        })?;
        Some(dirs.conf_dir)
    };
    let mut out = std::io::stdout();
    for path in config_manager::remove_others(&root, None, dir.as_deref())? {
        writeln!(out, "removed {}", path.display())?;
    }
    for path in install::remove_others(&root, &[])? {
        writeln!(out, "removed {path}")?;
    }
    if dhcp::end() > 0 {
        writeln!(out, "ended the plugin dhcp that held leases")?;
    }
    state::remove_locks(&root, &config.cni_dir)?;
    if let Some(settings) = &config.certificate
        && certificate::forget(&root, settings)?
    {
        writeln!(out, "removed the certificate in {}", settings.dir.display())?;
    }
    anyhow::ensure!(
        undone.is_empty(),
        "cannot detach all that is left: {}; it stays known in {} for the next installation",
        undone.join("; "),
        config.cni_dir.display()
    );
    Ok(())
}
