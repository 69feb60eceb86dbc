//! The constants of this machine at ordinary priority, as TOML: `tailplane calibrate` without its table.

use world::calibrate::{Effort, calibrate};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let found = calibrate(Effort::QUICK, &|side| measure::pin(side as usize))?;
    for found in &found.found {
        println!("# {:<50} {:10.1} ns", found.name, found.median_ns);
    }
    print!("{}", found.costs.to_toml());
    Ok(())
}
