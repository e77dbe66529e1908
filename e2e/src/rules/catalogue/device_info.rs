//! Device information files.

use super::{
    Source::{NetworkPlumbing, Upstream},
    Subject, must,
};

pub(super) const SUBJECT: Subject = Subject {
    name: "device-info",
    title: "Device information files",
    introduction: "Device plugins and network plugins describe a network's device in a file, for the network status.",
    rules: &[
        must(
            "device-info.file",
            "A plugin gets the path of the device information file as the capability `CNIDeviceInfoFile`, and the status annotation holds what the plugin wrote there.",
            NetworkPlumbing("Multi-Net-Spec v1.3, section 5.3.7"),
        ),
        must(
            "device-info.of-device-plugin",
            "The device information of a device plugin is copied before the network's plugin runs.",
            Upstream,
        ),
        must(
            "device-info.name",
            "The name of a device information file consists of network, container ID and interface, with `-` in place of `/`.",
            Upstream,
        ),
        must(
            "device-info.types",
            "Device information reaches the status annotation unchanged, whatever its type.",
            NetworkPlumbing("Multi-Net-Spec v1.3, section 5.3.7"),
        ),
        must(
            "device-info.removed",
            "`DEL` removes the device information file.",
            Upstream,
        ),
    ],
};
