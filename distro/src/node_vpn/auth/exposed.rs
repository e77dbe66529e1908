//! The arguments and the environment of this process as the kernel shows them to others: `/proc/PID/cmdline` and `environ`, which are
//! memory of the process itself (proc(5)), so that what is overwritten there is overwritten for all readers.

use std::{
    fs::{self, File},
    io,
    ops::Range,
    os::unix::fs::FileExt as _,
};

use zeroize::Zeroizing;

use super::TEXTS;

const FLAG: &[u8] = b"--vpn-auth";

/// More than the kernel takes for arguments and environment by default.
const MAX: u64 = 64 << 20;

/// Overwrites the values of `--vpn-auth` and of the variables with settings, and checks that they are gone.
pub(super) fn overwrite() -> io::Result<()> {
    let memory = File::options()
        .read(true)
        .write(true)
        .open("/proc/self/mem")?;
    let stat = fs::read_to_string("/proc/self/stat")?;
    let areas = areas(&stat).ok_or_else(|| io::Error::other("/proc/self/stat has no areas"))?;
    for (area, find) in areas.into_iter().zip([arguments, variables]) {
        let bytes = read(&memory, &area)?;
        for secret in find(&bytes) {
            let length = secret.len();
            let at = area.start + secret.start as u64;
            memory.write_all_at(&vec![b'x'; length], at)?;
        }
        let bytes = read(&memory, &area)?;
        let is_gone =
            |secret: &Range<usize>| bytes[secret.clone()].iter().all(|&byte| byte == b'x');
        if !find(&bytes).iter().all(is_gone) {
            return Err(io::Error::other("the memory did not change"));
        }
    }
    Ok(())
}

/// Returns a copy of an area, which is overwritten when it is dropped.
fn read(memory: &File, area: &Range<u64>) -> io::Result<Zeroizing<Vec<u8>>> {
    let length = area.end.saturating_sub(area.start).min(MAX);
    let length = usize::try_from(length).map_err(io::Error::other)?;
    let mut bytes = Zeroizing::new(vec![0; length]);
    memory.read_exact_at(&mut bytes, area.start)?;
    Ok(bytes)
}

/// Returns the areas of arguments and environment: fields 48 to 51 of `stat`, whose second field may contain anything but ends with `)`.
fn areas(stat: &str) -> Option<[Range<u64>; 2]> {
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_whitespace().skip(45);
    let mut next = || fields.next()?.parse().ok();
    Some([next()?..next()?, next()?..next()?])
}

/// Returns the places of the flag's values among arguments, each of which ends with a NUL.
fn arguments(area: &[u8]) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let mut is_value = false;
    for (start, item) in items(area) {
        let all = start..start + item.len();
        let value = item.strip_prefix(FLAG);
        match value.and_then(|value| value.strip_prefix(b"=")) {
            _ if is_value => found.push(all),
            Some(value) => found.push(all.end - value.len()..all.end),
            None => {}
        }
        is_value = !is_value && item == FLAG;
    }
    found
}

/// Returns the places of the variables' values in an environment.
fn variables(area: &[u8]) -> Vec<Range<usize>> {
    let value = |item: &[u8]| {
        let name = item.split(|&byte| byte == b'=').next()?;
        let is_ours = TEXTS.iter().any(|ours| ours.as_bytes() == name);
        (is_ours && name.len() < item.len()).then(|| name.len() + 1)
    };
    items(area)
        .filter_map(|(start, item)| Some(start + value(item)?..start + item.len()))
        .collect()
}

fn items(area: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    let mut start = 0;
    area.split(|&byte| byte == 0).map(move |item| {
        let at = start;
        start += item.len() + 1;
        (at, item)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(area: &[u8], find: fn(&[u8]) -> Vec<Range<usize>>) -> Vec<String> {
        let texts = find(area).into_iter().map(|place| area[place].to_vec());
        texts.map(|text| String::from_utf8(text).unwrap()).collect()
    }

    #[test]
    fn every_form_of_a_secret_is_found_and_nothing_else() {
        let area = b"multus-distro\0--vpn-auth\0a,k=1\0--vpn-auth=b\0--vpn-auth-file\0/c\0--\0k3s\0--vpn-auth\0--vpn-auth\0d\0";
        assert_eq!(texts(area, arguments), ["a,k=1", "b", "--vpn-auth"]);
        assert_eq!(texts(b"x\0--vpn-auth\0", arguments), [""]);
        let area = b"PATH=/bin\0K3S_VPN_AUTH=a=b\0K3S_VPN_AUTH_FILE=/f\0RKE2_VPN_AUTH=\0K3S_VPN_AUTH\0XK3S_VPN_AUTH=z\0";
        assert_eq!(texts(area, variables), ["a=b", ""]);
    }

    #[test]
    fn areas_are_found_behind_any_name() {
        let numbers: Vec<String> = (3..53).map(|number| number.to_string()).collect();
        let stat = format!("7 (a) b) {}", numbers.join(" "));
        assert_eq!(areas(&stat), Some([48..49, 50..51]));
        assert_eq!(areas("7 (a) S 1"), None);
        // What the kernel shows of this process is there.
        let stat = fs::read_to_string("/proc/self/stat").unwrap();
        let [own, _] = areas(&stat).unwrap();
        let memory = File::open("/proc/self/mem").unwrap();
        assert_eq!(
            *read(&memory, &own).unwrap(),
            fs::read("/proc/self/cmdline").unwrap()
        );
    }
}
