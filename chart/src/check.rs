//! Checks of the packed charts: the charts of all names differ in nothing but the name, and their files parse.

use crate::{
    CHARTS, Chart, IDENTITIES,
    pack::{PackError, files},
    settings::BuildSettings,
};

/// The reasons why the charts must not be published.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    /// A chart cannot be packed.
    #[error(transparent)]
    Pack(#[from] PackError),
    /// The charts of two names differ.
    #[error("{file} differs between {} and {other} by more than the name", IDENTITIES[0].name)]
    Differs {
        /// The file that differs.
        file: String,
        /// The other name.
        other: &'static str,
    },
    /// A file does not parse.
    #[error("{file} of {chart} does not parse: {reason}")]
    Parse {
        /// The chart's name.
        chart: String,
        /// The file's path.
        file: String,
        /// The parser's error.
        reason: String,
    },
}

/// Lines of `Chart.yaml` that may differ besides the name.
const DISTRO_LINES: [&str; 1] = ["  \"fleet.cattle.io/bundle-id\": "];

/// Checks all charts and returns the number of files that were compared.
pub fn check<'a>(settings: impl Into<BuildSettings<'a>>) -> Result<usize, CheckError> {
    let settings = settings.into();
    let [first, others @ ..] = IDENTITIES;
    let mut compared = 0;
    for chart in CHARTS {
        let left = files(chart, first, &settings)?;
        for (path, bytes) in &left {
            parse(chart, path, bytes)?;
        }
        for other in others {
            let right = files(chart, other, &settings)?;
            let differs = |file: &str| CheckError::Differs {
                file: file.to_owned(),
                other: other.name,
            };
            if left.len() != right.len() {
                return Err(differs("the list of files"));
            }
            for ((path, left), (found, right)) in left.iter().zip(&right) {
                // Templates take the name from `Chart.yaml`, so it stands nowhere else.
                let is_same = if path == "Chart.yaml" {
                    let renamed = text(left).replace(first.name, other.name);
                    comparable(&renamed) == comparable(&text(right))
                } else {
                    left == right
                };
                if path != found || !is_same {
                    return Err(differs(path));
                }
                compared += 1;
            }
        }
    }
    Ok(compared)
}

fn comparable(text: &str) -> Vec<&str> {
    let may_differ = |line: &&str| DISTRO_LINES.iter().any(|prefix| line.starts_with(prefix));
    text.split('\n').filter(|line| !may_differ(line)).collect()
}

fn parse(chart: Chart, path: &str, bytes: &[u8]) -> Result<(), CheckError> {
    let outcome = match path {
        "Chart.yaml" | "values.yaml" => serde_yaml::from_slice::<serde_yaml::Value>(bytes)
            .map(drop)
            .map_err(|error| error.to_string()),
        "values.schema.json" => serde_json::from_slice::<serde_json::Value>(bytes)
            .map(drop)
            .map_err(|error| error.to_string()),
        _ => Ok(()),
    };
    outcome.map_err(|reason| CheckError::Parse {
        chart: chart.name(IDENTITIES[0]),
        file: path.to_owned(),
        reason,
    })
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_charts_pass() {
        assert!(check("5.0.0").unwrap() > 10);
    }

    #[test]
    fn only_lines_of_the_distro_may_differ() {
        let line = "  \"fleet.cattle.io/bundle-id\": k3s";
        assert_eq!(comparable(&format!("name: a\n{line}")), ["name: a"]);
        let other = line.replace("fleet", "flow");
        assert_eq!(comparable(&other), [other.as_str()]);
    }
}
