//! The content of a file as text for people: one line about the file, and one for each part of it, indented.

use std::fmt::Write as _;

use cmdline::counted;
use release::parts;

use super::{
    Explained,
    content::{Content, Files, Image},
};

pub(super) fn of(one: &Explained) -> String {
    let mut lines = vec![head(one)];
    if let Some(part) = one.part {
        lines.push(format!("for {}: {}", part.audience, part.usage));
    }
    match &one.content {
        Content::Release {
            images,
            charts,
            files,
            ..
        } => {
            lines.extend(images.iter().flat_map(image_lines));
            for chart in charts {
                lines.push(format!(
                    "chart {} {}: {}",
                    chart.name, chart.version, chart.path
                ));
            }
            // In the order of the table, and what has no row last.
            for part in parts::PARTS.iter() {
                if let Some(files) = files.get(part.path) {
                    let (path, what) = (part.path, part.what);
                    lines.push(format!("{path}: {what}; {}", files_line(files, "file")));
                }
            }
            if let Some(files) = files.get(parts::OTHER) {
                lines.push(format!("{}: {}", parts::OTHER, files_line(files, "file")));
            }
        }
        Content::Archive { images } => lines.extend(images.iter().flat_map(image_lines)),
        Content::List { images } => lines.extend(images.iter().cloned()),
        Content::Checksums { files } => {
            lines.extend(
                files
                    .iter()
                    .map(|file| format!("{}  {}", file.sha256, file.path)),
            );
        }
        Content::Program { .. } | Content::File {} => {}
    }
    let mut text = String::new();
    for (at, line) in lines.iter().enumerate() {
        let indent = if at == 0 { "" } else { "  " };
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{indent}{line}");
    }
    text
}

fn head(one: &Explained) -> String {
    let what = match &one.content {
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
        Content::File {} => one.part.map_or("file", |part| part.what).to_owned(),
    };
    format!("{}: {what}, {} bytes", one.name, one.size)
}

fn files_line(files: &Files, noun: &str) -> String {
    format!("{}, {} bytes", counted(files.count, noun), files.size)
}

fn image_lines(image: &Image) -> Vec<String> {
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
