//! Stand-ins for the part of Apple's SDK that linking for macOS takes: files that list the names which a library of the system has.
//!
//! The C compiler's wheel has that of the C library. Those of the others are written here, with the names that the kubectl plugin calls;
//! a name that is missing fails the linking.

use std::{fs, path::PathBuf};

use anyhow::Context as _;

use crate::{c_compiler::CCompiler, project::Project, tree::Tree};

/// The directory of the SDK in xtask's cache.
const DIR: &str = "macos-sdk";

/// A library of macOS.
struct Library {
    /// Its file in an SDK.
    file: &'static str,
    /// The path that programs load.
    path: &'static str,
    /// Names of functions and data, as C has them.
    names: &'static [&'static str],
}

const LIBRARIES: &[Library] = &[
    Library {
        file: "System/Library/Frameworks/CoreFoundation.framework/CoreFoundation.tbd",
        path: "/System/Library/Frameworks/CoreFoundation.framework/Versions/A/CoreFoundation",
        names: &[
            "CFArrayCreate",
            "CFDataCreate",
            "CFDateCreate",
            "CFErrorCopyDescription",
            "CFErrorGetCode",
            "CFRelease",
            "CFStringCreateWithBytes",
            "CFStringGetBytes",
            "CFStringGetCStringPtr",
            "CFStringGetLength",
            "kCFAbsoluteTimeIntervalSince1970",
            "kCFAllocatorDefault",
            "kCFTypeArrayCallBacks",
        ],
    },
    Library {
        file: "System/Library/Frameworks/Security.framework/Security.tbd",
        path: "/System/Library/Frameworks/Security.framework/Versions/A/Security",
        names: &[
            "SecCertificateCopySubjectSummary",
            "SecCertificateCreateWithData",
            "SecCopyErrorMessageString",
            "SecPolicyCreateSSL",
            "SecTrustCreateWithCertificates",
            "SecTrustEvaluateWithError",
            "SecTrustSetAnchorCertificates",
            "SecTrustSetAnchorCertificatesOnly",
            "SecTrustSetOCSPResponse",
            "SecTrustSetVerifyDate",
        ],
    },
    // A crate asks for it and calls nothing in it.
    Library {
        file: "usr/lib/libiconv.tbd",
        path: "/usr/lib/libiconv.2.dylib",
        names: &[],
    },
];

/// The other names of the C library, which is one file.
const C_LIBRARY: [&str; 3] = ["System", "c", "m"];

/// Writes the SDK, and returns its directory.
pub(crate) fn write(project: &Project, compiler: &CCompiler) -> anyhow::Result<PathBuf> {
    let c_library = compiler.macos_c_library();
    let c_library =
        fs::read(&c_library).with_context(|| format!("cannot read {}", c_library.display()))?;
    let mut tree = Tree::default();
    for name in C_LIBRARY {
        tree.add(format!("{DIR}/usr/lib/lib{name}.tbd"), c_library.clone());
    }
    for library in LIBRARIES {
        tree.add(format!("{DIR}/{}", library.file), library.text());
    }
    tree.update(&project.cache_dir(), &[&format!("{DIR}/")])?;
    Ok(project.cache_dir().join(DIR))
}

impl Library {
    /// Returns the stand-in in the linker's format, version 4 of text-based stubs (LLVM, `TextAPI`).
    fn text(&self) -> String {
        const TARGETS: &str = "[ x86_64-macos, arm64-macos ]";
        let names: Vec<_> = self.names.iter().map(|name| format!("_{name}")).collect();
        format!(
            "--- !tapi-tbd\ntbd-version: 4\ntargets: {TARGETS}\ninstall-name: '{}'\nexports:\n  - targets: {TARGETS}\n    symbols: [ {} ]\n...\n",
            self.path,
            names.join(", ")
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stand_in_lists_the_names_of_its_library() {
        let library = Library {
            file: "usr/lib/libx.tbd",
            path: "/usr/lib/libx.1.dylib",
            names: &["one", "two"],
        };
        let expected = "--- !tapi-tbd\n\
            tbd-version: 4\n\
            targets: [ x86_64-macos, arm64-macos ]\n\
            install-name: '/usr/lib/libx.1.dylib'\n\
            exports:\n  - targets: [ x86_64-macos, arm64-macos ]\n    symbols: [ _one, _two ]\n\
            ...\n";
        assert_eq!(library.text(), expected);
    }
}
