//! The pods and network definitions of a bench. Pods are as large as those of a kubelet, and their names have the number of networks.

use serde_json::{Value, json};

use super::side::PODS;
use crate::{control_plane::objects, node::runtime::IMAGE};

/// The annotation that requests networks.
const NETWORKS: &str = "k8s.v1.cni.cncf.io/networks";

/// Returns pods with one and with three networks.
pub(crate) fn all(node: &str) -> Vec<Value> {
    let pods = |networks| (0..PODS).map(move |index| pod(index, networks, node));
    pods(1).chain(pods(3)).collect()
}

pub(crate) fn name(index: u32, networks: u32) -> String {
    format!("pod-{networks}-{index}")
}

pub(crate) fn uid(index: u32, networks: u32) -> String {
    format!("00000000-0000-4000-{networks:04x}-{index:012x}")
}

/// Returns two network definitions with the plugin that answers immediately.
pub(crate) fn definitions() -> Vec<Value> {
    let names = ["first", "second"];
    let mut definitions = names.map(|name| {
        objects::network(
            name,
            &json!({"cniVersion": "1.0.0", "name": name, "type": super::PLUGIN}),
        )
    });
    for definition in &mut definitions {
        definition["metadata"]["resourceVersion"] = json!("900");
        definition["metadata"]["uid"] =
            json!(format!("definition-{}", definition["metadata"]["name"]));
    }
    definitions.into()
}

fn pod(index: u32, networks: u32, node: &str) -> Value {
    let name = name(index, networks);
    let mut pod = objects::pod(&name, node, (networks > 1).then_some("first,second"));
    let metadata = &mut pod["metadata"];
    metadata["uid"] = json!(uid(index, networks));
    metadata["resourceVersion"] = json!("900");
    metadata["creationTimestamp"] = json!("2026-01-01T00:00:00Z");
    metadata["labels"] = json!({"app.kubernetes.io/name": "bench", "app.kubernetes.io/instance": name, "pod-template-hash": "5d4f8c7b9"});
    metadata["ownerReferences"] = json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "bench-5d4f8c7b9",
        "uid": "11111111-0000-4000-8000-000000000000", "controller": true, "blockOwnerDeletion": true}]);
    // The managed fields of a pod that a ReplicaSet has created and a kubelet runs.
    metadata["managedFields"] = json!([
        {"manager": "kube-controller-manager", "operation": "Update", "apiVersion": "v1", "time": "2026-01-01T00:00:00Z", "fieldsType": "FieldsV1",
         "fieldsV1": {"f:metadata": {"f:generateName": {}, "f:annotations": {".": {}, (format!("f:{NETWORKS}")): {}}, "f:labels": {".": {}, "f:app.kubernetes.io/name": {}, "f:pod-template-hash": {}}, "f:ownerReferences": {".": {}, "k:{\"uid\":\"11111111-0000-4000-8000-000000000000\"}": {}}},
         "f:spec": {"f:containers": {"k:{\"name\":\"main\"}": {".": {}, "f:env": {".": {}}, "f:image": {}, "f:imagePullPolicy": {}, "f:name": {}, "f:resources": {}, "f:terminationMessagePath": {}, "f:terminationMessagePolicy": {}}}, "f:dnsPolicy": {}, "f:enableServiceLinks": {}, "f:restartPolicy": {}, "f:schedulerName": {}, "f:securityContext": {}, "f:terminationGracePeriodSeconds": {}}}},
        {"manager": "kubelet", "operation": "Update", "apiVersion": "v1", "time": "2026-01-01T00:00:01Z", "fieldsType": "FieldsV1", "subresource": "status",
         "fieldsV1": {"f:status": {"f:conditions": {"k:{\"type\":\"ContainersReady\"}": {".": {}, "f:lastProbeTime": {}, "f:lastTransitionTime": {}, "f:status": {}, "f:type": {}}, "k:{\"type\":\"Initialized\"}": {".": {}, "f:status": {}, "f:type": {}}, "k:{\"type\":\"Ready\"}": {".": {}, "f:status": {}, "f:type": {}}}, "f:containerStatuses": {}, "f:hostIP": {}, "f:phase": {}, "f:podIP": {}, "f:podIPs": {".": {}, "k:{\"ip\":\"10.244.1.7\"}": {".": {}, "f:ip": {}}}, "f:startTime": {}}}},
    ]);
    let condition = |kind: &str| json!({"type": kind, "status": "True", "lastProbeTime": null, "lastTransitionTime": "2026-01-01T00:00:02Z"});
    let conditions = [
        "PodReadyToStartContainers",
        "Initialized",
        "Ready",
        "ContainersReady",
        "PodScheduled",
    ]
    .map(condition);
    let variable = |number: u32| json!({"name": format!("SETTING_{number}"), "value": "a value of ordinary length"});
    pod["spec"]["containers"][0]["env"] = (0..10).map(variable).collect();
    pod["spec"]["containers"][0]["resources"] =
        json!({"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "128Mi"}});
    pod["spec"]["containers"][0]["volumeMounts"] = json!([{"name": "kube-api-access", "readOnly": true, "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"}]);
    pod["spec"]["volumes"] = json!([{"name": "kube-api-access", "projected": {"defaultMode": 420, "sources": [
        {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
        {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}]}},
    ]}}]);
    pod["status"] = json!({
        "phase": "Running", "hostIP": "10.77.0.1", "podIP": "10.244.1.7", "podIPs": [{"ip": "10.244.1.7"}], "qosClass": "Burstable",
        "startTime": "2026-01-01T00:00:00Z",
        "conditions": conditions,
        "containerStatuses": [{"name": "main", "image": IMAGE, "imageID": "sha256:0000000000000000000000000000000000000000000000000000000000000000",
            "containerID": "containerd://0000000000000000000000000000000000000000000000000000000000000000", "ready": true, "started": true,
            "restartCount": 0, "lastState": {}, "state": {"running": {"startedAt": "2026-01-01T00:00:01Z"}}}],
    });
    pod
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_are_as_large_as_real_ones() {
        let pods = all("n1");
        let (first, last) = (&pods[0]["metadata"], &pods[pods.len() - 1]["metadata"]);
        assert_eq!(
            (&first["name"], &last["name"]),
            (&json!("pod-1-0"), &json!("pod-3-63"))
        );
        assert!(first["annotations"][NETWORKS].is_null());
        assert_eq!(last["annotations"][NETWORKS], "first,second");
        assert_eq!(last["uid"], uid(63, 3));
        let size = pods[0].to_string().len();
        assert!((4000..9000).contains(&size), "{size} bytes");
    }
}
