//! The content of a file as text for people: one line about the file, and one for each part of it, indented.

use std::fmt::Write as _;

use cmdline::counted;

use super::content::{Content, Files, Image};

pub(super) fn of(name: &str, size: u64, content: &Content) -> String {
    let mut lines = vec![head(name, size, content)];
    match content {
        Content::Release {
            images,
            charts,
            files,
            ..
        } => {
            lines.extend(images.iter().flat_map(of_image));
            for chart in charts {
                lines.push(format!(
                    "chart {} {}: {}",
                    chart.name, chart.version, chart.path
                ));
            }
            for (kind, files) in files {
                lines.push(format!("{kind}: {}", of_files(files, "file")));
            }
        }
        Content::Archive { images } => lines.extend(images.iter().flat_map(of_image)),
        Content::List { images } => lines.extend(images.iter().cloned()),
        Content::Checksums { files } => {
            lines.extend(
                files
                    .iter()
                    .map(|file| format!("{}  {}", file.sha256, file.path)),
            );
        }
        Content::Program { .. } => {}
    }
    let mut text = String::new();
    for (at, line) in lines.iter().enumerate() {
        let indent = if at == 0 { "" } else { "  " };
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{indent}{line}");
    }
    text
}

fn head(name: &str, size: u64, content: &Content) -> String {
    let what = match content {
        Content::Release {
            version,
            commit,
            architectures,
            ..
        } => format!(
            "release {version} of commit {commit} for {}",
            architectures.join(", ")
        ),
        Content::Archive { images } => {
            let mut arches: Vec<_> = images
                .iter()
                .flat_map(|image| &image.platforms)
                .map(|platform| platform.arch.as_str())
                .collect();
            arches.sort_unstable();
            arches.dedup();
            format!(
                "archive of {} for {}",
                counted(images.len(), "image"),
                arches.join(", ")
            )
        }
        Content::List { images } => format!("list of {}", counted(images.len(), "image")),
        Content::Checksums { files } => format!("checksums of {}", counted(files.len(), "file")),
        Content::Program { arch } => format!("static program for {arch}"),
    };
    format!("{name}: {what}, {size} bytes")
}

fn of_files(files: &Files, noun: &str) -> String {
    format!("{}, {} bytes", counted(files.count, noun), files.size)
}

fn of_image(image: &Image) -> Vec<String> {
    let mut lines = vec![format!("image {} ({})", image.reference, image.digest)];
    for platform in &image.platforms {
        lines.push(format!(
            "  {}: {}, {} bytes, {} unpacked",
            platform.arch,
            counted(platform.layers, "layer"),
            platform.size,
            platform.unpacked
        ));
    }
    lines
}
