//! `multus-daemon uninstall`: removes our CNI configuration and the shim from the node; state of running pods stays.

use std::io::Write;

use node::{
    dirs::Overrides,
    discover::{DiscoverOptions, discover},
    install::Installation,
};

use super::CommandContext;
use crate::{app, certificate, config_manager, host, state};

/// Removes the CNI configuration first, then the installed files. A failure to detach does not stop the removal, but is returned at its end.
pub async fn run(context: &CommandContext, detach: bool) -> anyhow::Result<()> {
    let (config, root) = (context.config()?, context.root()?);
    let mut failures = Vec::new();
    if detach {
        let identity = context.identity.clone();
        let left = app::hand_off(context.config()?, context.root()?, identity).await;
        match left {
            Ok(left) => {
                let mut err = std::io::stderr();
                for one in &left.kept {
                    writeln!(err, "{}", one.warning())?;
                }
                failures.extend(left.errors.iter().map(ToString::to_string));
            }
            Err(error) => failures.push(format!("{error:#}")),
        }
    }
    let dir = if config.conf_dir.is_some() || config_manager::any_installed(&root) {
        config.conf_dir.clone()
    } else {
        // Installed configurations are on record. Without a record, ours is recognised by its name in the runtime's directory.
        let question = DiscoverOptions {
            socket: config.cri_socket.clone(),
            pod_uid: context.identity.pod_uid.clone(),
            overrides: Overrides::default(),
        };
        let report = discover(&root, &question).await;
        let problem = report
            .problem
            .unwrap_or_else(|| "the runtime did not report its directories".to_owned());
        let dirs = report.dirs.ok_or_else(|| {
            anyhow::anyhow!(
                "{problem}; set cniConfigDir in {}",
                context.config.display()
            )
        })?;
        Some(dirs.conf_dir)
    };
    let mut out = std::io::stdout();
    for path in config_manager::remove_others(&root, None, dir.as_deref())? {
        writeln!(out, "removed {}", path.display())?;
    }
    for installation in [
        Installation::multiplexer(&root),
        Installation::plugins(&root),
    ] {
        for path in installation.remove_all()? {
            writeln!(out, "removed {path}")?;
        }
    }
    if host::end_services(&config, &root) > 0 {
        writeln!(out, "ended the plugin dhcp that held leases")?;
    }
    state::remove_locks(&root, &config.cni_dir)?;
    if let Some(settings) = &config.certificate
        && certificate::remove(&root, settings)?
    {
        writeln!(out, "removed the certificate in {}", settings.dir.display())?;
    }
    anyhow::ensure!(
        failures.is_empty(),
        "cannot detach all stale containers: {}; their state stays in {} for the next installation",
        failures.join("; "),
        config.cni_dir.display()
    );
    Ok(())
}
