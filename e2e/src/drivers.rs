//! A device plugin and a DRA driver, both of devices that are nothing but names: this very program, under arguments of its own, on the
//! sockets of a real kubelet.

pub(crate) mod device_plugin;
pub(crate) mod dra;

use std::ffi::OsString;

/// Runs the driver that the arguments name, if they name one: it ends with its node.
pub(crate) fn asked(mut arguments: impl Iterator<Item = OsString>) -> Option<anyhow::Result<()>> {
    let run: fn() -> anyhow::Result<()> = match arguments.next()?.to_str()? {
        device_plugin::NAME => device_plugin::run,
        dra::NAME => dra::run,
        _ => return None,
    };
    Some(run())
}

fn threads() -> anyhow::Result<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()?)
}
