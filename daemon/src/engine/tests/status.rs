//! STATUS of the default network.

use super::fixture::{DEFAULT_NETWORK, Fixture};

#[test]
fn status_is_cached() {
    let fixture = Fixture::new();
    fixture.status().unwrap();
    fixture.check_calls(&[]);
    fixture.default_network("1.1.0");
    for _ in 0..3 {
        fixture.status().unwrap();
    }
    fixture.check_calls(&["STATUS flannel", "STATUS portmap"]);
}

#[test]
fn status_keeps_the_plugins_code_until_the_default_network_changes() {
    let fixture = Fixture::new();
    fixture.default_network("1.1.0");
    fixture.on_call(|_| Err(cni::types::CniError::new(51, "degraded")));
    assert_eq!(fixture.status().unwrap_err().code, 51);
    assert_eq!(fixture.status().unwrap_err().code, 51);
    fixture.check_calls(&["STATUS flannel"]);
    fixture.put(
        DEFAULT_NETWORK,
        r#"{"cniVersion":"1.1.0","name":"other","type":"bridge"}"#,
    );
    fixture.status().unwrap_err();
    fixture.check_calls(&["STATUS bridge"]);
}

#[test]
fn status_without_default_network_or_plugin_is_50() {
    let fixture = Fixture::new();
    fixture.uninstall("portmap");
    let error = fixture.status().unwrap_err();
    assert_eq!(error.code, 50);
    assert!(error.msg.contains("\"portmap\""));
    for content in ["{", r#"{"name":"n","plugins":[]}"#] {
        fixture.put(DEFAULT_NETWORK, content);
        assert_eq!(fixture.status().unwrap_err().code, 50);
    }
    std::fs::remove_file(fixture.dir.path().join(DEFAULT_NETWORK)).unwrap();
    let error = fixture.status().unwrap_err();
    assert_eq!(error.code, 50);
    assert!(error.msg.contains("failed to get clusterNetwork"));
}
