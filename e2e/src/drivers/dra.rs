//! The configuration of the DRA driver (`e2e/tools/dra-driver`): four devices whose IDs are attributes of their resource slice, and one
//! without these attributes, whose ID only the runtime knows.

use std::path::Path;

use serde_json::{Map, Value, json};

/// The driver's name in the cluster.
pub(crate) const DRIVER: &str = "dra.e2e.example";
/// The resource name of its devices in network definitions.
pub(crate) const RESOURCE: &str = "e2e.example/claimed-nic";
/// The devices, by name in the slice and by device ID.
pub(crate) const DEVICES: [(&str, &str); 4] = [
    ("nic-one", "0000:5e:00.1"),
    ("nic-two", "0000:5e:00.2"),
    ("nic-three", "0000:5e:00.4"),
    ("nic-four", "0000:5e:00.5"),
];
/// The device without the attributes.
pub(crate) const BARE: (&str, &str) = ("nic-bare", "0000:5e:00.3");
/// The device classes of both kinds.
pub(crate) const CLASS: &str = "nic";
pub(crate) const BARE_CLASS: &str = "bare-nic";
/// The prefix of the environment variables with a container's devices; a number follows.
pub(crate) const VARIABLE: &str = "E2E_CLAIMED_";
/// The CDI kind of the devices, and the CDI file that the runtime reads.
const KIND: &str = "e2e.example/nic";
const CDI: &str = "/var/run/cdi/e2e.example-nic.json";
/// The directory of the driver's socket for the kubelet.
const DIRECTORY: &str = "/var/lib/kubelet/plugins/dra.e2e.example";

/// Returns the device classes.
pub(crate) fn classes() -> [Value; 2] {
    let of = |name, known, resource: Option<&str>| {
        let mine = format!(
            "device.driver == '{DRIVER}' && device.attributes['{DRIVER}'].known == {known}"
        );
        json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": name},
            // An API server without the feature gate drops this field.
            "spec": {"selectors": [{"cel": {"expression": mine}}], "extendedResourceName": resource},
        })
    };
    [of(CLASS, true, Some(RESOURCE)), of(BARE_CLASS, false, None)]
}

/// Returns the spec of a claim for devices of a class.
pub(crate) fn request(class: &str, count: usize) -> Value {
    json!({"devices": {"requests": [
        {"name": "nic", "exactly": {"deviceClassName": class, "count": count}},
    ]}})
}

/// Returns the driver's settings on a node.
pub(super) fn settings(node: &str, kubeconfig: &Path) -> Value {
    let known = DEVICES.map(|(name, id)| {
        json!({"name": name, "attributes": {
            "known": {"bool": true},
            "k8s.cni.cncf.io/deviceID": {"string": id}, "k8s.cni.cncf.io/resourceName": {"string": RESOURCE},
        }})
    });
    let bare = json!({"name": BARE.0, "attributes": {"known": {"bool": false}}});
    let devices: Vec<_> = known.into_iter().chain([bare]).collect();
    let all = || DEVICES.into_iter().chain([BARE]);
    let names: Map<_, _> = all()
        .map(|(name, id)| (name.to_owned(), json!(format!("{KIND}={id}"))))
        .collect();
    let seen = all().enumerate().map(|(number, (_, id))| {
        let variable = format!("{VARIABLE}{number}={id}");
        json!({"name": id, "containerEdits": {"env": [variable]}})
    });
    let cdi = json!({"cdiVersion": "0.6.0", "kind": KIND, "devices": seen.collect::<Vec<_>>()});
    let infos = DEVICES.map(|(_, id)| super::device_information(RESOURCE, id));
    let files: Map<_, _> = infos.into_iter().chain([(CDI.to_owned(), cdi)]).collect();
    json!({
        "kubeconfig": kubeconfig, "node": node, "driver": DRIVER, "directory": DIRECTORY,
        "devices": devices, "names": names, "files": files,
    })
}
