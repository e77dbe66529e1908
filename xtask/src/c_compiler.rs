//! The C compiler of releases: clang out of a Python wheel of Zig, which is the same program on every Linux, and the C library that it carries.
//!
//! `xtask/zig-*.lock` pin the wheel. It is unpacked below `target/xtask`, where small programs give the compiler its target.

use std::{
    env::consts,
    fs::{self, File},
    io::{self, Read as _},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail, ensure};
use archive::{
    digest::{Digest, sha256},
    durable,
};
use release::workstation::Workstation;
use xshell::{Shell, cmd};
use zip::ZipArchive;

use crate::{
    arch::{Arch, C_FLAGS, Facts},
    lock::{self, Item},
    project::Project,
    ui, workstations,
};

/// The kinds of machines that a release can be built on, each of which has its wheel.
const HOSTS: &[&str] = &["aarch64", "x86_64"];

/// The most bytes of the unpacked compiler.
const LIMIT: u64 = 1 << 30;

/// The directory of everything in the wheel that counts.
const TOP: &str = "ziglang/";

/// Parts of the wheel for other systems and languages, which are half of it.
const UNUSED: &[&str] = &[
    "lib/docs/",
    "lib/libc/glibc/",
    "lib/libc/wasi/",
    "lib/libcxx/",
    "lib/libcxxabi/",
    "lib/libtsan/",
    "lib/tsan/",
];

/// The file with the version of the C library.
const MUSL_VERSION: &str = "lib/libc/musl/src/internal/version.h";

/// Arguments of rustc that are left out, as patterns of the shell: the compiler links the C runtime of Windows, and its own functions for
/// what processors lack, without being asked.
const LEFT_OUT: &str = "-lmsvcrt | */libcompiler_builtins-*.rlib";

/// Objects that Rust links besides the start file, and that musl needs nothing in.
const EMPTY_OBJECTS: &[&str] = &["crti.o", "crtbegin.o", "crtend.o", "crtn.o"];

/// The unpacked compiler.
pub(crate) struct CCompiler {
    dir: PathBuf,
}

/// Returns the path of the lock for a kind of machine, in a checkout.
fn lock_name(host: &str) -> String {
    format!("xtask/zig-{host}.lock")
}

/// Returns the path of the lock for this machine, in a checkout.
pub(crate) fn lock() -> anyhow::Result<String> {
    ensure!(
        HOSTS.contains(&consts::ARCH) && consts::OS == "linux",
        "no C compiler is pinned for {} on {}: build on Linux, on {}",
        consts::OS,
        consts::ARCH,
        HOSTS.join(" or ")
    );
    Ok(lock_name(consts::ARCH))
}

/// Returns one digest over the locks of all machines, so that it is the same on each of them.
pub(crate) fn locks_digest(project: &Project) -> anyhow::Result<Digest> {
    let mut all = Vec::new();
    for host in HOSTS {
        let path = project.root.join(lock_name(host));
        let bytes = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
        all.extend(bytes);
    }
    Ok(sha256(&all))
}

/// Returns the wheel for this machine.
pub(crate) fn pinned(project: &Project) -> anyhow::Result<Item> {
    let lock = project.root.join(lock()?);
    let items = lock::read(&[&lock])?;
    let [item] = &items[..] else {
        bail!(
            "{} must lock one file, the compiler for this machine",
            lock.display()
        );
    };
    Ok(item.clone())
}

impl CCompiler {
    /// Returns the compiler, unpacked first where only its wheel is there, or `None` without both.
    pub(crate) fn find(project: &Project) -> anyhow::Result<Option<Self>> {
        let item = pinned(project)?;
        let compiler = Self::at(project, &item);
        if compiler.dir.is_dir() {
            return Ok(Some(compiler));
        }
        let wheel = project.download_dir().join(&item.name);
        if !wheel.is_file() {
            return Ok(None);
        }
        // Whoever put it there: its name says nothing of its bytes.
        let found = sha256(&fs::read(&wheel)?);
        ensure!(
            found == item.sha256,
            "{} has the sha256 {}, its lock says {}: remove it",
            wheel.display(),
            found.hex(),
            item.sha256.hex()
        );
        let cache = project.cache_dir();
        let context = || format!("cannot unpack {}", wheel.display());
        ui::step("unpack the C compiler", || {
            fs::create_dir_all(&cache)?;
            let staging = tempfile::Builder::new().prefix("zig-").tempdir_in(&cache)?;
            let file = File::open(&wheel)?;
            unpack(file, staging.path())?;
            write_programs(staging.path())?;
            durable::rename(&staging.keep(), &compiler.dir)?;
            anyhow::Ok(())
        })
        .with_context(context)?;
        Ok(Some(compiler))
    }

    fn at(project: &Project, item: &Item) -> Self {
        let wheel = item.sha256.hex();
        let parts = [
            wheel.as_str(),
            include_str!("c_compiler.rs"),
            include_str!("arch.rs"),
            include_str!("workstations.rs"),
        ];
        let key = sha256(parts.join("\n").as_bytes()).hex();
        let name = format!("zig-{}-{}", item.version, &key[..16]);
        Self {
            dir: project.cache_dir().join(name),
        }
    }

    /// Returns the compiler for an architecture.
    pub(crate) fn cc(&self, arch: Arch) -> PathBuf {
        self.cc_for(arch.name())
    }

    /// Returns the compiler for a kind of machine by its name in a release.
    pub(crate) fn cc_for(&self, machine: &str) -> PathBuf {
        self.dir.join(format!("cc-{machine}"))
    }

    /// Returns the list of names in the C library of macOS.
    pub(crate) fn macos_c_library(&self) -> PathBuf {
        self.dir.join("lib/libc/darwin/libSystem.tbd")
    }

    /// Returns the archiver.
    pub(crate) fn ar(&self) -> PathBuf {
        self.dir.join("ar")
    }

    /// Returns what the compiler prints of its version.
    pub(crate) fn version(&self, shell: &Shell) -> anyhow::Result<String> {
        let cc = self.cc(Arch::Amd64);
        let text = cmd!(shell, "{cc} --version")
            .quiet()
            .read()
            .with_context(|| format!("cannot run {}", cc.display()))?;
        let line = text.lines().next().context("it prints no version")?;
        Ok(line.to_owned())
    }

    /// Returns the version of the C library that the compiler carries.
    pub(crate) fn musl_version(&self) -> anyhow::Result<String> {
        let path = self.dir.join(MUSL_VERSION);
        let text =
            fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let mut parts = text.split('"');
        let version = parts.nth(1);
        let version = version.with_context(|| format!("{} has no version", path.display()))?;
        Ok(version.to_owned())
    }

    /// Makes the C library, and the other files that Rust links programs of musl with, in a directory.
    pub(crate) fn make_libc(&self, shell: &Shell, arch: Arch, to: &Path) -> anyhow::Result<()> {
        let facts = Facts::of(arch);
        let (target, cpu) = (facts.c_target, facts.c_cpu);
        let work = tempfile::tempdir_in(&self.dir).context("cannot make a directory")?;
        // A fresh cache has each file once.
        let cache = work.path().join("cache");
        let empty = work.path().join("empty.c");
        fs::write(&empty, "")?;
        let main = work.path().join("main.c");
        fs::write(&main, "int main(void) { return 0; }\n")?;
        let (zig, program) = (self.dir.join("zig"), work.path().join("main"));
        let program = format!("-femit-bin={}", program.display());
        let cpu = format!("-mcpu={cpu}");
        cmd!(
            shell,
            "{zig} build-exe -target {target} {cpu} -O ReleaseSmall {main} -lc -lunwind -static -fno-lto {program}"
        )
        .env("ZIG_GLOBAL_CACHE_DIR", &cache)
        .env("ZIG_LOCAL_CACHE_DIR", &cache)
        .quiet()
        .run()
        .with_context(|| format!("cannot build the C library for {}", arch.name()))?;
        for name in ["crt1.o", "libc.a", "libunwind.a"] {
            let path = newest(&cache.join("o"), name)?;
            fs::copy(&path, to.join(name))
                .with_context(|| format!("cannot copy {}", path.display()))?;
        }
        let cc = self.cc(arch);
        for name in EMPTY_OBJECTS {
            let object = to.join(name);
            cmd!(shell, "{cc} {C_FLAGS...} -c {empty} -o {object}")
                .quiet()
                .run()
                .with_context(|| format!("cannot make {name} for {}", arch.name()))?;
        }
        Ok(())
    }
}

/// Returns the file of this name in a compiler's cache that was made last: the start file is made of one with the same name. Two of one
/// time are refused, since only chance would choose between them.
fn newest(cache: &Path, name: &str) -> anyhow::Result<PathBuf> {
    let context = || format!("cannot read {}", cache.display());
    let mut files = Vec::new();
    for dir in fs::read_dir(cache).with_context(context)? {
        let path = dir.with_context(context)?.path().join(name);
        if let Ok(metadata) = path.metadata() {
            files.push((metadata.modified()?, path));
        }
    }
    files.sort();
    let (time, path) = files
        .pop()
        .with_context(|| format!("the C compiler made no {name}"))?;
    ensure!(
        files.last().is_none_or(|(before, _)| *before < time),
        "two files {name} in {} have one time: build on a file system with finer times",
        cache.display()
    );
    Ok(path)
}

/// Unpacks what is needed of a wheel.
fn unpack(wheel: impl io::Read + io::Seek, to: &Path) -> anyhow::Result<()> {
    let mut archive = ZipArchive::new(wheel).context("it is not a wheel")?;
    let mut left = LIMIT;
    for index in 0..archive.len() {
        let entry = archive.by_index(index)?;
        let name = entry.name()?.into_owned();
        let Some(path) = wanted(&name)? else {
            continue;
        };
        let path = to.join(path);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        let mut file = File::create_new(&path)?;
        left -= io::copy(&mut entry.take(left), &mut file)?;
        ensure!(left > 0, "it has more than {LIMIT} bytes");
        if name == "ziglang/zig" {
            make_executable(&path)?;
        }
    }
    ensure!(to.join("zig").is_file(), "it has no {TOP}zig");
    Ok(())
}

/// Returns the path of a wheel's file below the compiler's directory, or `None` when it is not needed.
fn wanted(name: &str) -> anyhow::Result<Option<&str>> {
    let Some(path) = name.strip_prefix(TOP) else {
        return Ok(None);
    };
    if path.is_empty() || path.ends_with('/') {
        return Ok(None);
    }
    ensure!(
        archive::tar::is_plain(path),
        "the name `{name}` does not stay in its directory"
    );
    Ok((!UNUSED.iter().any(|unused| path.starts_with(unused))).then_some(path))
}

fn make_executable(path: &Path) -> io::Result<()> {
    fs::set_permissions(path, fs::Permissions::from_mode(0o755))
}

/// Writes the programs that build scripts call: they take only a path, and no arguments.
fn write_programs(dir: &Path) -> anyhow::Result<()> {
    let mut programs = vec![("ar".to_owned(), "ar".to_owned())];
    for arch in Arch::ALL {
        let Facts {
            c_target, c_cpu, ..
        } = Facts::of(arch);
        let arguments = format!("cc -target {c_target} -mcpu={c_cpu}");
        programs.push((format!("cc-{}", arch.name()), arguments));
    }
    for workstation in Workstation::ALL {
        let target = workstations::Facts::of(workstation).c_target;
        let arguments = format!("cc -target {target} -mcpu=baseline");
        programs.push((format!("cc-{}", workstation.name()), arguments));
    }
    for (name, arguments) in programs {
        let path = dir.join(name);
        fs::write(&path, program(&arguments))?;
        make_executable(&path)?;
    }
    Ok(())
}

/// Returns a program that runs the compiler next to it.
fn program(arguments: &str) -> String {
    format!(
        "#!/bin/sh\n\
         # Made by cargo xtask.\n\
         dir=${{0%/*}}\n\
         export ZIG_GLOBAL_CACHE_DIR=\"$dir/cache\" ZIG_LOCAL_CACHE_DIR=\"$dir/cache\"\n\
         for argument; do\n  \
           shift\n  \
           case $argument in\n    \
             {LEFT_OUT}) ;;\n    \
             *) set -- \"$@\" \"$argument\" ;;\n  \
           esac\n\
         done\n\
         exec \"$dir/zig\" {arguments} \"$@\"\n"
    )
}

#[cfg(test)]
mod tests {
    use std::{
        io::Write as _,
        process::Command,
        time::{Duration, SystemTime},
    };

    use zip::{ZipWriter, write::SimpleFileOptions};

    use super::*;

    fn wheel(names: &[&str]) -> io::Cursor<Vec<u8>> {
        let mut writer = ZipWriter::new(io::Cursor::new(Vec::new()));
        for name in names {
            let options = SimpleFileOptions::default();
            writer.start_file(*name, options).unwrap();
            writer
                .write_all(b"#!/bin/sh\necho \"$@\" \"$ZIG_LOCAL_CACHE_DIR\"\n")
                .unwrap();
        }
        writer.finish().unwrap()
    }

    #[test]
    fn wheel_is_unpacked_without_unused_parts() {
        let dir = tempfile::tempdir().unwrap();
        let names = [
            "ziglang/zig",
            "ziglang/lib/std/a.zig",
            "ziglang/lib/libc/glibc/b.c",
            "ziglang-1.dist-info/METADATA",
        ];
        unpack(wheel(&names), dir.path()).unwrap();
        assert!(dir.path().join("lib/std/a.zig").is_file());
        let entries = fs::read_dir(dir.path()).unwrap();
        assert_eq!(entries.count(), 2);
        assert!(!dir.path().join("lib/libc").exists());
    }

    #[test]
    fn wheel_with_other_content_is_refused() {
        for (names, expected) in [
            (&["ziglang/../zig"][..], "does not stay in its directory"),
            (&["ziglang/lib/a"], "it has no ziglang/zig"),
        ] {
            let dir = tempfile::tempdir().unwrap();
            let error = unpack(wheel(names), dir.path()).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
        let dir = tempfile::tempdir().unwrap();
        let error = unpack(io::Cursor::new(b"x".to_vec()), dir.path()).unwrap_err();
        assert_eq!(error.to_string(), "it is not a wheel");
    }

    #[test]
    fn newest_file_of_a_name_is_taken_and_two_of_one_time_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let error = newest(dir.path(), "crt1.o").unwrap_err().to_string();
        assert_eq!(error, "the C compiler made no crt1.o");
        let make = |name: &str, seconds| {
            fs::create_dir(dir.path().join(name)).unwrap();
            let file = File::create(dir.path().join(name).join("crt1.o")).unwrap();
            let time = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
            file.set_modified(time).unwrap();
        };
        make("b", 1);
        make("a", 2);
        fs::write(dir.path().join("a/libc.a"), "").unwrap();
        let found = newest(dir.path(), "crt1.o").unwrap();
        assert_eq!(found, dir.path().join("a/crt1.o"));
        make("c", 2);
        let error = newest(dir.path(), "crt1.o").unwrap_err().to_string();
        assert!(error.starts_with("two files crt1.o in "), "{error}");
    }

    #[test]
    fn compiler_gets_its_target_and_a_cache_of_its_own() {
        let parent = tempfile::tempdir().unwrap();
        let dir = parent.path().join("a b$(c)'");
        fs::create_dir(&dir).unwrap();
        unpack(wheel(&["ziglang/zig"]), &dir).unwrap();
        write_programs(&dir).unwrap();
        let compiler = CCompiler { dir: dir.clone() };
        let output = |program: &Path| {
            let output = Command::new(program)
                .args(["-c", "x y", "-lmsvcrt", "/a/libcompiler_builtins-1.rlib"])
                .output()
                .unwrap();
            String::from_utf8(output.stdout).unwrap()
        };
        let cache = dir.join("cache").display().to_string();
        assert_eq!(
            output(&compiler.cc(Arch::Arm64)),
            format!("cc -target aarch64-linux-musl -mcpu=baseline -c x y {cache}\n")
        );
        assert_eq!(output(&compiler.ar()), format!("ar -c x y {cache}\n"));
    }

    #[test]
    fn locks_pin_one_version_for_every_machine() {
        let project = Project::open().unwrap();
        let items = HOSTS.iter().map(|host| {
            let items = lock::read(&[project.root.join(lock_name(host))]).unwrap();
            let [item] = &items[..] else {
                panic!("{host} has {} files", items.len());
            };
            assert!(
                item.name.ends_with(&format!("_{host}.whl")),
                "{}",
                item.name
            );
            item.version.clone()
        });
        let versions: std::collections::BTreeSet<_> = items.collect();
        assert_eq!(versions.len(), 1, "{versions:?}");
    }
}
