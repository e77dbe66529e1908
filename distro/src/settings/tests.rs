//! The settings as K3s and RKE2 read them, from arguments, environment and files.

use std::fs;

use super::*;

/// Reads the settings with this environment and configuration file.
fn read_all(line: &str, env: &[(&str, &str)], config: &str) -> anyhow::Result<Settings> {
    let args: Vec<String> = line.split(' ').map(str::to_owned).collect();
    let find = |key: &str| {
        let found = env.iter().find(|(name, _)| *name == key);
        found.map(|(_, value)| (*value).to_owned())
    };
    let dir = tempfile::tempdir()?;
    for distro in ["k3s", "rke2"] {
        let dir = dir.path().join("etc/rancher").join(distro);
        fs::create_dir_all(&dir)?;
        fs::write(dir.join("config.yaml"), config)?;
    }
    fs::write(dir.path().join("other.yaml"), "data-dir: /other")?;
    read(&Root::open(dir.path())?, &args, find, None)
}

/// The expected values are those of a program with urfave/cli 2.27.7, the release in K3s' go.mod, and K3s' flags, whose arguments follow
/// those of the file.
#[test]
fn single_value_is_the_last_of_arguments_before_file_before_environment() {
    let env = &[("K3S_DATA_DIR", "/e")][..];
    let file = "data-dir: /c";
    for (line, env, config, expected) in [
        ("k3s server", &[][..], "", "/var/lib/rancher/k3s"),
        ("k3s server", &[], file, "/c"),
        ("k3s server", &[], "d: /c", "/c"),
        ("k3s server", env, "", "/e"),
        ("k3s server", env, file, "/c"),
        ("rke2 server", env, "", "/var/lib/rancher/rke2"),
        (
            "/usr/bin/k3s server --data-dir=/a --data-dir /b",
            env,
            file,
            "/b",
        ),
        ("k3s server -data-dir=/b", &[], file, "/b"),
        ("k3s server -data-dir /b", &[], "", "/b"),
        ("k3s server --d=/b", &[], "", "/b"),
        ("k3s server -d /b", &[], "", "/b"),
        ("k3s server --token x -d /b", &[], "", "/b"),
        ("k3s server --rootless -d /b", &[], "", "/b"),
        ("k3s --debug server -d /b", &[], "", "/b"),
        // A flag of the whole program is none of the server's.
        ("k3s --data-dir /x server", &[], "", "/var/lib/rancher/k3s"),
        // A switch takes no further argument, and nothing counts behind one that belongs to no flag.
        (
            "k3s server --disable-agent false -d /y",
            &[],
            "",
            "/var/lib/rancher/k3s",
        ),
        ("k3s server -- -d /y", &[], "", "/var/lib/rancher/k3s"),
        ("k3s server -c /none", &[], file, "/var/lib/rancher/k3s"),
        ("k3s server --config=/other.yaml", &[], file, "/other"),
        ("k3s --config /other.yaml server", &[], file, "/other"),
        ("k3s server -config=/other.yaml", &[], file, "/c"),
        (
            "k3s server --config=/none",
            &[("K3S_CONFIG_FILE", "/other.yaml")],
            file,
            "/other",
        ),
    ] {
        let data_dir = read_all(line, env, config).unwrap().data_dir;
        assert_eq!(data_dir, Path::new(expected), "{line} {env:?} {config}");
    }
}

#[test]
fn list_has_the_values_of_file_and_arguments() {
    let lists = |line: &str, env: &[(&str, &str)], config: &str| {
        let settings = read_all(line, env, config).unwrap();
        let place = settings.place("cni");
        (settings.cni, settings.tls_san, place)
    };
    let line = "rke2 server --tls-san a,b -tls-san=c --cni=canal";
    let (cni, tls_san, place) = lists(line, &[("RKE2_CNI", "x")], "tls-san: [z]\ncni: multus");
    assert_eq!(tls_san, ["z", "a", "b", "c"]);
    assert_eq!(cni, ["multus", "canal"]);
    assert_eq!(place, Some(Place::Arguments));
    let env = &[("RKE2_CNI", "multus,canal"), ("RKE2_TLS_SAN", "x")];
    let (cni, tls_san, place) = lists("rke2 server", env, "");
    assert_eq!(cni, ["multus", "canal"]);
    assert!(tls_san.is_empty());
    assert_eq!(place, Some(Place::Environment));
    let settings = read_all("k3s server", &[], "kubelet-arg: 'a=b,c'").unwrap();
    assert_eq!(settings.kubelet_arg, ["a=b,c"]);
}

#[test]
fn variables_that_the_distro_does_not_read_do_not_count() {
    let env = [
        ("K3S_FLANNEL_BACKEND", "none"),
        ("K3S_CLUSTER_CIDR", "10.1.0.0/16"),
        ("K3S_NODE_IP", "10.0.0.1"),
        ("K3S_DISABLE", "multus"),
        ("K3S_CNI", "multus"),
    ];
    let settings = read_all("k3s server", &env, "").unwrap();
    assert_eq!(settings, read_all("k3s server", &[], "").unwrap());
    let env = [("RKE2_CLUSTER_INIT", "true")];
    assert!(!read_all("rke2 server", &env, "").unwrap().cluster_init);
    let env = [("K3S_CLUSTER_INIT", "true")];
    assert!(read_all("k3s server", &env, "").unwrap().cluster_init);
}

#[test]
fn server_without_agent_is_recognised_from_arguments_before_the_file() {
    for (line, config, expected) in [
        ("k3s server", "", true),
        ("k3s server --disable-agent", "", false),
        ("k3s server -disable-agent", "", false),
        ("k3s server --disable-agent=true", "", false),
        (
            "k3s server --disable-agent=false",
            "disable-agent: true",
            true,
        ),
        ("k3s server", "disable-agent: true", false),
        ("k3s server", "disable-agent: \"1\"", false),
        ("k3s server", "disable-agent: false", true),
        ("k3s server", "disable-agent: yes", false),
        ("k3s server", "disable-agent: On", false),
        ("k3s server", "disable-agent: no", true),
        // The words are YAML's alone.
        ("k3s server --disable-agent=yes", "", true),
        ("k3s server --disable-agent-x", "", true),
    ] {
        let settings = read_all(line, &[], config).unwrap();
        assert_eq!(settings.staging().runs_agent, expected, "{line} {config}");
    }
}

#[test]
fn rke2_with_its_own_multus_is_refused() {
    for (line, env, config) in [
        ("rke2 server --cni multus,canal", &[][..], ""),
        ("rke2 server --cni canal", &[], "cni: multus"),
        ("rke2 server", &[], "cni: [multus, canal]"),
        ("rke2 server", &[("RKE2_CNI", "multus,canal")], ""),
    ] {
        let settings = read_all(line, env, config).unwrap();
        let error = settings.ensure_no_own_multus().unwrap_err().to_string();
        assert!(error.contains("take `multus` out"), "{line}: {error}");
    }
    let line = "rke2 server --cni canal --system-default-registry r";
    let settings = read_all(line, &[("RKE2_CNI", "multus")], "").unwrap();
    settings.ensure_no_own_multus().unwrap();
    assert_eq!(settings.registry, "r");
}

#[test]
fn disabled_manifests_stay_disabled() {
    let added = |line: &str, config: &str| {
        let settings = read_all(line, &[], config).unwrap();
        settings.args_to_disable(&["multus"])
    };
    assert_eq!(added("k3s server", ""), ["--disable=multus"]);
    assert_eq!(
        added("k3s server", "disable: [traefik, servicelb]"),
        [
            "--disable=traefik",
            "--disable=servicelb",
            "--disable=multus"
        ]
    );
    assert_eq!(
        added("k3s server --disable traefik", "disable: servicelb"),
        ["--disable=multus"]
    );
    assert_eq!(added("k3s server", "disable: traefik,multus"), [""; 0]);
    assert_eq!(added("k3s server --disable=x,multus", ""), [""; 0]);
    assert_eq!(added("k3s server --disable=x", "disable: multus"), [""; 0]);
}

#[test]
fn default_networks_have_the_family_of_the_first_address() {
    for (first, pods, services) in [
        (None, "10.42.0.0/16", "10.43.0.0/16"),
        (Some("10.0.0.1"), "10.42.0.0/16", "10.43.0.0/16"),
        (Some("fd11::10"), "fd00:42::/56", "fd00:43::/112"),
    ] {
        let first = first.map(|text| text.parse().unwrap());
        assert_eq!(pod_networks(&[], first), [pods]);
        assert_eq!(service_networks(&[], first), [services]);
    }
    let own = ["10.9.0.0/16".to_owned()];
    assert_eq!(pod_networks(&own, "fd11::10".parse().ok()), own);
}

#[test]
fn wrong_roles_and_unknown_programs_are_refused() {
    let role = |line: &str| {
        let args: Vec<String> = line.split(' ').map(str::to_owned).collect();
        require_role(&args, Distro::K3s).map_err(|error| error.to_string())
    };
    for line in ["k3s server", "k3s --debug server"] {
        assert_eq!(role(line), Ok(Role::Server));
    }
    for line in ["k3s agent", "k3s --debug agent"] {
        assert_eq!(role(line), Ok(Role::Agent));
    }
    let neither = role("k3s etcd-snapshot").unwrap_err();
    assert!(neither.contains("as in: -- k3s server"), "{neither}");
    let error = read_all("sleep 1", &[], "").unwrap_err();
    assert!(error.to_string().contains("--distro"));
}
