//! A power cut at every step of a verb. What was not synced may be lost, in each directory independently. After the next start, or the
//! next DEL, nothing is left, no lease on disk included. Other tests count how often a verb waits for the disk.

mod disk;

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use cni::types::CniError;
use serde_json::json;

use self::disk::{DIRS, FATES, Fate, Recorder, files};
use super::world::{Call, World};
use crate::engine::Namespace;
use crate::state::faults::{self, Fault};

type Verb<'a> = &'a dyn Fn(&mut World) -> Result<(), CniError>;

/// Returns the leases that plugins keep on disk, as host-local does.
fn leases(world: &World) -> Vec<String> {
    let names = files(&world.dir.path().join("leases"));
    names.into_iter().map(|(name, _)| name).collect()
}

/// Returns a node whose plugins keep leases and fail at the planned step.
fn node() -> (Arc<Recorder>, World) {
    let disk = Arc::new(Recorder::default());
    let world = World::on_disk(Arc::clone(&disk) as _);
    world.nad("fails", r#"{"cniVersion":"1.0.0","type":"failing"}"#);
    let dir = world.dir.path().join("leases");
    fs::create_dir(&dir).unwrap();
    world.on_call(move |call: &Call| {
        let text = call.text();
        faults::step().map_err(|error| CniError::new(5, format!("{text}: {error}")))?;
        let lease = dir.join(format!("{} {}", call.env["CNI_IFNAME"], call.plugin));
        match call.env["CNI_COMMAND"].as_str() {
            "ADD" => fs::write(lease, call.env["CNI_CONTAINERID"].as_str()).unwrap(),
            "DEL" => drop(fs::remove_file(lease)),
            _ => {}
        }
        match text.as_str() {
            "ADD failing net2" => Err(CniError::new(7, "no")),
            _ => Ok(()),
        }
    });
    (disk, world)
}

/// Cuts the power at every step of `verb`, after `before`, with several fates of the directories, and checks that `after` leaves nothing.
/// `after` gets whether the verb was answered. Returns the number of steps.
fn at_every_step(
    before: Verb<'_>,
    verb: Verb<'_>,
    after: &dyn Fn(&mut World, bool) -> Result<(), CniError>,
) -> u32 {
    let mut most = 0;
    // Six of the sixty-four combinations: all lost, all kept, and each directory kept while another one is lost.
    for [base, own, results] in [
        [0, 0, 0],
        [0, 3, 1],
        [1, 2, 2],
        [2, 1, 3],
        [3, 0, 0],
        [3, 3, 3],
    ] {
        let fates = [FATES[base], FATES[own], FATES[results]];
        for step in 0.. {
            let (disk, mut world) = node();
            // On any node that is not new, the directories exist already.
            world.add("c0", "").unwrap();
            world.del("c0").unwrap();
            before(&mut world).unwrap();
            disk.settle(&world);
            faults::plan(step, Fault::End);
            let outcome = catch_unwind(AssertUnwindSafe(|| verb(&mut world)));
            let happened = faults::happened();
            if !happened {
                outcome.unwrap().unwrap();
            }
            disk.cut(&world, fates);
            world.reboot();
            let case = format!("{fates:?} at {step}");
            after(&mut world, !happened).unwrap_or_else(|error| panic!("{case}: {error}"));
            assert_eq!(leases(&world), Vec::<String>::new(), "{case}");
            let left = world.left();
            assert!(left.is_empty(), "{case}: {left:?}");
            if !happened {
                most = most.max(step);
                break;
            }
        }
    }
    most
}

fn add(world: &mut World) -> Result<(), CniError> {
    world.add("c1", "a,b").map(drop)
}

fn del(world: &mut World) -> Result<(), CniError> {
    world.del("c1")
}

/// Starts the daemon on a node whose runtime does not know the container.
fn start(world: &mut World) -> Result<(), CniError> {
    let path = ["/opt/cni/bin".into()];
    let stale = |_: &_, namespace: Namespace<'_>| match namespace {
        Namespace::Unknown => false,
        Namespace::Lost => true,
        Namespace::At(path) => !world.dir.path().join(&path[1..]).exists(),
    };
    let errors = world.engine.sweep(&path, &world.netconf(), &stale);
    errors.into_iter().next().map_or(Ok(()), Err)
}

/// Removes entries of the result cache that lost their content, as the next start does: they name no container.
fn without_empty_results(world: &World) {
    let dir = world.dir.path().join(DIRS[2]);
    for (name, file) in files(&dir) {
        if file.metadata().unwrap().len() == 0 {
            fs::remove_file(dir.join(name)).unwrap();
        }
    }
}

#[test]
fn power_cut_in_add_is_undone_by_the_next_start() {
    let steps = at_every_step(&|_| Ok(()), &add, &|world, _| start(world));
    // Four plugins, two files, two waits, a word for each further network.
    assert_eq!(steps, 10);
}

#[test]
fn power_cut_in_add_is_undone_by_del() {
    at_every_step(&|_| Ok(()), &add, &|world, _| {
        del(world)?;
        without_empty_results(world);
        start(world)
    });
}

#[test]
fn power_cut_in_add_is_undone_by_gc() {
    at_every_step(&|_| Ok(()), &add, &|world, _| {
        world.gc(json!([]))?;
        without_empty_results(world);
        Ok(())
    });
}

#[test]
fn power_cut_in_a_failing_add_is_undone_by_the_next_start() {
    let failing = |world: &mut World| {
        world.add("c1", "a,fails").unwrap_err();
        Ok(())
    };
    at_every_step(&|_| Ok(()), &failing, &|world, _| start(world));
}

#[test]
fn power_cut_in_del_is_finished_by_start_or_del() {
    let steps = at_every_step(&add, &del, &|world, answered| {
        start(world)?;
        // The runtime repeats a DEL that was not answered.
        if answered { Ok(()) } else { del(world) }
    });
    assert_eq!(steps, 7);
}

#[test]
fn power_cut_after_add_and_del_leaves_nothing() {
    let verb = |world: &mut World| {
        add(world)?;
        del(world)
    };
    at_every_step(&|_| Ok(()), &verb, &|world, answered| {
        start(world)?;
        if answered { Ok(()) } else { del(world) }
    });
}

#[test]
fn power_cut_in_start_is_finished_by_the_next_start() {
    let before = |world: &mut World| {
        add(world)?;
        world.reboot();
        Ok(())
    };
    at_every_step(&before, &start, &|world, _| start(world));
}

#[test]
fn power_cut_in_hot_plug_is_undone_by_the_next_start() {
    let before = |world: &mut World| world.add("c1", "a,b@old").map(drop);
    let wanted =
        r#"[{"name": "a", "mac": "02:00:00:00:00:07"}, {"name": "b", "interface": "new"}]"#;
    let follow = |world: &mut World| world.follow("c1", wanted).map(drop);
    at_every_step(&before, &follow, &|world, _| start(world));
}

/// An attached network stays known until it is detached, even if the power cut took the record of its progress.
#[test]
fn networks_of_a_cut_add_are_retried_until_detached() {
    let worst = Fate {
        names: false,
        content: false,
    };
    for first in [&start as Verb<'_>, &del] {
        let (disk, mut world) = node();
        add(&mut world).unwrap();
        disk.cut(&world, [worst; 3]);
        world.reboot();
        world.fail(&["DEL macvlan"]);
        first(&mut world).unwrap_err();
        world.on_call(|_| Ok(()));
        world.calls();
        start(&mut world).unwrap();
        world.check_calls(&["DEL macvlan net1"]);
        assert!(world.left().is_empty(), "{:?}", world.left());
    }
}

#[test]
fn number_of_syncs_does_not_depend_on_the_number_of_networks() {
    let (disk, world) = node();
    world.add("c0", "").unwrap();
    world.del("c0").unwrap();
    disk.waits();
    for networks in ["", "a", "a,b", "a,b,a,b"] {
        world.add("c1", networks).unwrap();
        // The content and the name of the first record.
        assert_eq!(disk.waits(), 2, "{networks}");
        world.del("c1").unwrap();
        assert_eq!(disk.waits(), 1, "{networks}");
        world.del("c1").unwrap();
        assert_eq!(disk.waits(), 0, "{networks}");
    }
}

/// Without a boot id a reboot cannot be recognised, so progress has to be on disk.
#[test]
fn missing_boot_id_syncs_every_network() {
    let (disk, world) = node();
    fs::remove_file(world.dir.path().join("proc/sys/kernel/random/boot_id")).unwrap();
    world.add("c0", "").unwrap();
    disk.waits();
    world.add("c1", "a,b").unwrap();
    // Both files, and a word for each further network.
    assert_eq!(disk.waits(), 6);
}
