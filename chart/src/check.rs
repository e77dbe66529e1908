//! Checks of the packed charts: the charts of the two names differ in nothing but the name, and their files parse.

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
    /// The charts of the two names differ.
    #[error("{file} differs between {} and {} by more than the name", IDENTITIES[0].name, IDENTITIES[1].name)]
    Differs {
        /// The file that differs.
        file: String,
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
    let [first, second] = IDENTITIES;
    let mut compared = 0;
    for chart in CHARTS {
        let (left, right) = (
            files(chart, first, &settings)?,
            files(chart, second, &settings)?,
        );
        if left.len() != right.len() {
            return Err(CheckError::Differs {
                file: "the list of files".to_owned(),
            });
        }
        for ((path, left), (other, right)) in left.iter().zip(&right) {
            let renamed = text(right).replace(second.name, first.name);
            if path != other || comparable(path, &text(left)) != comparable(path, &renamed) {
                return Err(CheckError::Differs { file: path.clone() });
            }
            parse(chart, path, left)?;
            compared += 1;
        }
    }
    Ok(compared)
}

fn comparable<'a>(path: &str, text: &'a str) -> Vec<&'a str> {
    let may_differ = |line: &&str| {
        path == "Chart.yaml" && DISTRO_LINES.iter().any(|prefix| line.starts_with(prefix))
    };
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
        assert_eq!(
            comparable("Chart.yaml", &format!("name: a\n{line}")),
            ["name: a"]
        );
        assert_eq!(comparable("values.yaml", line), [line]);
    }
}
