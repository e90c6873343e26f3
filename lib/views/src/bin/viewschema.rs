//! `viewschema FOLDER`: writes view.schema.json, the form of what `-o json` prints.

use std::{env, fs, io, path::PathBuf, process::ExitCode};

use ckb_probe_views::document::Document;

fn main() -> ExitCode {
    let Some(folder) = env::args_os().nth(1).map(PathBuf::from) else {
        eprintln!("usage: viewschema FOLDER");
        return ExitCode::from(2);
    };
    let schema = serde_json::to_string_pretty(&Document::json_schema());
    let written = schema.map_err(io::Error::from).and_then(|schema| {
        fs::create_dir_all(&folder)?;
        fs::write(folder.join("view.schema.json"), schema + "\n")
    });
    match written {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("viewschema: cannot write to {}: {error}", folder.display());
            ExitCode::FAILURE
        }
    }
}
