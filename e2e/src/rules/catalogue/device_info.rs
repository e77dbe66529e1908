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
            "A plugin gets the path of the file as the capability `CNIDeviceInfoFile`, and the status annotation holds what the plugin wrote there.",
            NetworkPlumbing("Multi-Net-Spec v1.3, section 5.3.7"),
        ),
        must(
            "device-info.of-device-plugin",
            "The file of the device plugin is copied before the network's plugin runs.",
            Upstream,
        ),
        must(
            "device-info.place",
            "The file's name has the network, the container ID and the interface, with `-` in place of `/`.",
            Upstream,
        ),
        must(
            "device-info.types",
            "The description reaches the status annotation unchanged, whatever its type.",
            NetworkPlumbing("Multi-Net-Spec v1.3, section 5.3.7"),
        ),
        must("device-info.removed", "`DEL` removes the file.", Upstream),
    ],
};
