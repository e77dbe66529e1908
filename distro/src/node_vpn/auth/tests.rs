//! The order of sources, files that others can read or that are not files, and errors that hide keys.

use std::os::unix::fs::{PermissionsExt as _, symlink};

use rustix::process::dumpable_behavior;

use super::*;

const SETTINGS: &str = "name=tailscale,joinKey=tskey-auth-Abc123";

#[test]
fn file_wins_over_text_and_argument_over_variable() {
    let order = |args: &AuthArgs, names: &[&str]| {
        let variable = |name: &str| names.contains(&name).then(|| format!("/{name}"));
        let sources = sources(args, variable).into_iter();
        let names = sources.map(|source| match source.content {
            Content::File(path) => path.display().to_string(),
            Content::Text(_) => source.from,
        });
        names.collect::<Vec<_>>().join(", ")
    };
    let both = AuthArgs {
        vpn_auth_file: Some("/f".into()),
        vpn_auth: Some(Text::parse(SETTINGS).unwrap()),
    };
    assert_eq!(
        order(&both, &VARIABLES),
        "/f, /K3S_VPN_AUTH_FILE, /RKE2_VPN_AUTH_FILE, --vpn-auth, the variable K3S_VPN_AUTH, the variable RKE2_VPN_AUTH"
    );
    assert_eq!(order(&AuthArgs::default(), &["PATH"]), "");
    assert!(!format!("{both:?}").contains("Abc123"));
}

#[test]
fn settings_that_do_not_count_are_named() {
    let line = |args: &AuthArgs, names: &[&str]| {
        let variable = |name: &str| names.contains(&name).then(|| "/a".to_owned());
        unused(&sources(args, variable))
    };
    let file = |path: &str| AuthArgs {
        vpn_auth_file: Some(path.into()),
        vpn_auth: None,
    };
    assert_eq!(line(&AuthArgs::default(), &[]), None);
    assert_eq!(line(&file("/b"), &[]), None);
    assert_eq!(line(&file("/a"), &["K3S_VPN_AUTH_FILE"]), None);
    assert_eq!(
        line(&file("/b"), &["K3S_VPN_AUTH_FILE"]).unwrap(),
        "the VPN's settings of --vpn-auth-file count, and those of the variable K3S_VPN_AUTH_FILE do not: take these away"
    );
    let both = line(
        &AuthArgs::default(),
        &["RKE2_VPN_AUTH_FILE", "K3S_VPN_AUTH"],
    );
    assert!(both.unwrap().contains(
        "the variable RKE2_VPN_AUTH_FILE count, and those of the variable K3S_VPN_AUTH do"
    ));
}

#[test]
fn process_with_the_key_leaves_no_core_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("vpn");
    std::fs::write(&path, SETTINGS).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    let args = AuthArgs {
        vpn_auth_file: Some(path),
        vpn_auth: None,
    };
    // Another test may have taken settings in this process.
    set_dumpable_behavior(DumpableBehavior::Dumpable).unwrap();
    assert!(take(&args, |_| None).unwrap().is_some());
    assert_eq!(dumpable_behavior().unwrap(), DumpableBehavior::NotDumpable);
}

#[test]
fn file_is_for_its_owner_alone() {
    let dir = tempfile::tempdir().unwrap();
    let root = Root::open(dir.path()).unwrap();
    let path = dir.path().join("vpn");
    std::fs::write(&path, SETTINGS).unwrap();
    let mode = |mode| {
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        read_file(&root, Path::new("/vpn"))
    };
    for open in [0o640, 0o604, 0o620, 0o602, 0o644] {
        let error = mode(open).unwrap_err().to_string();
        let expected = format!("/vpn has mode {open:04o}");
        assert!(error.starts_with(&expected), "{error}");
        assert!(error.ends_with(": chmod 600 /vpn"), "{error}");
    }
    assert_eq!(mode(0o600).unwrap().expose(), SETTINGS.as_bytes());
    assert_eq!(mode(0o400).unwrap().expose(), SETTINGS.as_bytes());
    symlink("/vpn", dir.path().join("link")).unwrap();
    assert!(read_file(&root, Path::new("/link")).is_ok());
    let error = mode(0o644).unwrap_err().to_string();
    assert!(!error.contains("Abc123"));
    assert!(read_file(&root, Path::new("/link")).is_err());
}

#[test]
fn what_is_no_file_of_settings_is_refused_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let root = Root::open(dir.path()).unwrap();
    let refused = |name: &str, part: &str| {
        let error = read_file(&root, Path::new(name)).unwrap_err();
        assert!(format!("{error:#}").contains(part), "{error:#}");
    };
    rustix::fs::mknodat(
        rustix::fs::CWD,
        dir.path().join("pipe"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR,
        0,
    )
    .unwrap();
    refused("/pipe", "not a regular file");
    refused("/", "not a regular file");
    refused("/none", "cannot read the VPN's settings from /none");
    let path = dir.path().join("long");
    std::fs::write(&path, vec![b'x'; 1 << 20]).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    let long = read_file(&root, Path::new("/long")).unwrap();
    assert!(Auth::parse(long.expose()).is_err());
    assert!(long.expose().len() < 1 << 14);
}

#[test]
fn usage_errors_hide_keys() {
    let check = |line: &str, expected: &str| assert_eq!(masked(line), expected);
    check(
        "unexpected argument 'x' found",
        "unexpected argument 'x' found",
    );
    check(
        "unexpected argument 'joinKey=tskey-a' found; joinKey=b",
        "unexpected argument 'joinKey… found; joinKey…",
    );
    check("tskey-auth-1 tskey-client-2 x", "tskey-… tskey-… x");
}
