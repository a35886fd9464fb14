"""Grafana's dashboards as they are meant; tools/monitoring.py makes the classic JSON of them.

A panel is a title, what it shows in a sentence, a unit of Grafana's, and its expressions with their legends. Panels stand
three in a row, under the heading they belong to.
"""

JOB = 'namespace=~"$namespace", job=~"$job"'
OPERATOR = 'namespace=~"$namespace", job=~"$job"'
RANK = "{{job}} {{role}} {{replica}}/{{process}}"
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
COLUMNS, WIDTH, HEIGHT = 3, 8, 8


def rate(metric: str, by: str, matchers: str, more: str = "") -> str:
    return f"sum by ({by}) (rate({metric}{{{matchers}{more}}}[$__rate_interval]))"


def quantile(q: float, metric: str, by: str, matchers: str) -> str:
    """Of a histogram. (Never of a literal `le`: Prometheus 3 writes it in another way.)"""
    return f"histogram_quantile({q}, {rate(metric + '_bucket', by + ', le', matchers)})"


def own_part(matchers: str) -> str:
    by = "namespace, job, role, replica, process"
    whole, waiting = (rate(f"lockstep_{kind}_duration_seconds_sum", by, matchers) for kind in ("step", "collective"))
    count = f"sum by ({by}) (rate(lockstep_step_duration_seconds_count{{{matchers}}}[$__rate_interval]) > 0)"
    return f"({whole} - {waiting}) / {count}"


def jobs_panels() -> list:
    job = "namespace, job"
    return [
        ("Training", [
            ("Throughput", "Samples that the whole job consumes in a second, those repeated after a restart included.", "short",
             [(rate("lockstep_samples_total", job, JOB), "{{namespace}}/{{job}}")]),
            ("Steps", "Training steps in a second. Zero for long: docs/runbooks/LockstepJobStandsStill.md.", "ops",
             [(rate("lockstep_steps_total", job, JOB), "{{namespace}}/{{job}}")]),
            ("Loss", "Of the newest step's global batch, and its moving average.", "short",
             [(f"max by ({job}) (lockstep_loss{{{JOB}}})", "{{job}}"),
              (f"max by ({job}) (lockstep_loss_average{{{JOB}}})", "{{job}} average")]),
            ("Accuracy", "At the newest evaluation.", "percentunit",
             [(f"max by ({job}) (lockstep_accuracy_ratio{{{JOB}}})", "{{job}}")]),
            ("Learning rate", "Of the newest step, as the schedule has it.", "sci",
             [(f"max by ({job}) (lockstep_learning_rate{{{JOB}}})", "{{job}}")]),
            ("Jobs", "What runs, one row a launcher: strategy, framework, version.", "table",
             [(f"lockstep_job_info{{{JOB}}}", ""), (f"lockstep_build_info{{{JOB}}}", "")]),
        ]),
        ("Where the time goes", [
            ("Goodput", "Share of a job's whole time that went into steps which still count.", "percentunit",
             [(f"max by ({job}) (lockstep_goodput_ratio{{{JOB}}})", "{{namespace}}/{{job}}")]),
            ("Lost time by reason", "Share of the time that was lost, now. More than 100 % for a moment: a restart shows that "
             "steps have to be done again.", "percentunit",
             [(rate("lockstep_lost_work_seconds_total", job + ", reason", JOB), "{{job}} {{reason}}")]),
            ("Restarts", "Within the last interval, by reason.", "short",
             [(f"sum by ({job}, reason) (increase(lockstep_restarts_total{{{JOB}}}[$__rate_interval]))", "{{job}} {{reason}}")]),
            ("Productive and lost seconds", "Since the job's launcher started.", "s",
             [(f"max by ({job}) (lockstep_productive_seconds{{{JOB}}})", "{{job}} productive"),
              (f"sum by ({job}) (lockstep_lost_work_seconds_total{{{JOB}}})", "{{job}} lost")]),
            ("Data wait of each rank", "Share of a rank's time in which its steps waited for samples.", "percentunit",
             [(rate("lockstep_data_wait_seconds_total", "namespace, job, role, replica, process", JOB), RANK)]),
            ("Events not understood", "Lines of programs that were skipped.", "short",
             [(f"sum by ({job}) (increase(lockstep_malformed_events_total{{{JOB}}}[$__rate_interval]))", "{{namespace}}/{{job}}")]),
        ]),
        ("Steps", [
            ("Step time", "Median and 99th percentile over all ranks.", "s",
             [(quantile(q, "lockstep_step_duration_seconds", job, JOB), f"{{{{job}}}} p{q * 100:.0f}") for q in (0.5, 0.99)]),
            ("Own part of a step", "A rank's time of a step without communication: all wait for the rank that has the most.", "s",
             [(own_part(JOB), RANK)]),
            ("Stragglers", "By how much a rank's own part of a step is longer than that of its launcher's median rank.", "s",
             [(f"max by (namespace, job, role, replica, process) (lockstep_straggler_delay_seconds{{{JOB}}})", RANK)]),
            ("Communication time", "Median and 99th percentile of what a step spends in collectives, waiting for others included.", "s",
             [(quantile(q, "lockstep_collective_duration_seconds", job, JOB), f"{{{{job}}}} p{q * 100:.0f}") for q in (0.5, 0.99)]),
            ("Exposed communication", "Share of the time that went into communication which no computing hid.", "percentunit",
             [(rate("lockstep_exposed_communication_seconds_total", job, JOB), "{{namespace}}/{{job}}")]),
            ("Communication", "What a rank hands to collectives in a second.", "Bps",
             [(rate("lockstep_collective_bytes_total", "namespace, job, role, replica, process", JOB), RANK)]),
        ]),
        ("Checkpoints", [
            ("Checkpoint time", "Until it was durable: median by result.", "s",
             [(quantile(0.5, "lockstep_checkpoint_duration_seconds", job + ", result", JOB), "{{job}} {{result}}")]),
            ("Age of the newest checkpoint", "What a failure would lose at most.", "s",
             [(f"time() - max by ({job}) (lockstep_checkpoint_last_success_timestamp_seconds{{{JOB}}})", "{{namespace}}/{{job}}")]),
            ("Stopped for checkpoints", "Share of the time that the training stood still for them.", "percentunit",
             [(rate("lockstep_checkpoint_blocking_seconds_total", job, JOB), "{{namespace}}/{{job}}")]),
        ]),
        ("Computing and memory", [
            ("Model operations", "Floating-point operations of the model in a second, over all ranks.", "flops",
             [(rate("lockstep_model_flops_total", job, JOB), "{{namespace}}/{{job}}")]),
            ("Model FLOP utilisation", "Operations of the model over what all GPUs of the job can do, by precision: look at the "
             "one that the job computes in. Without a GPU there is none.", "percentunit",
             [(rate("lockstep_model_flops_total", job, JOB) + f" / on ({job}) group_right () sum by ({job}, precision) "
               f"(lockstep_device_peak_flops{{{JOB}}})", "{{job}} of {{precision}}")]),
            ("Memory of each rank", "As the rank reports it: used, held, peak, limit.", "bytes",
             [(f'max by (namespace, job, role, replica, process, kind) (lockstep_device_memory_bytes{{{JOB}, process!=""}})',
               RANK + " {{kind}}")]),
            ("Processor of the launchers", "Cores that watching the job takes; the ranks are not in it.", "short",
             [(rate("process_cpu_seconds_total", "namespace, job, instance", JOB), "{{job}} {{instance}}")]),
            ("Memory of the launchers", "Resident, of the launcher alone.", "bytes",
             [(f"max by (namespace, job, instance) (process_resident_memory_bytes{{{JOB}}})", "{{job}} {{instance}}")]),
        ]),
        ("GPUs", [
            ("GPU utilisation", "Share of the time in which some kernel ran, of any program.", "percentunit",
             [(f"max by (namespace, job, instance, device) (lockstep_device_utilization_ratio{{{JOB}}})", "{{instance}} GPU {{device}}")]),
            ("GPU memory", "In use by all programs.", "bytes",
             [(f'max by (namespace, job, instance, device) (lockstep_device_memory_bytes{{{JOB}, kind="device_used"}})',
               "{{instance}} GPU {{device}}")]),
            ("GPU power", "What each GPU draws.", "watt",
             [(f"max by (namespace, job, instance, device) (lockstep_device_power_watts{{{JOB}}})", "{{instance}} GPU {{device}}")]),
            ("GPU temperature", "Of the die.", "celsius",
             [(f"max by (namespace, job, instance, device) (lockstep_device_temperature_celsius{{{JOB}}})",
               "{{instance}} GPU {{device}}")]),
            ("GPUs held back", "1 while the driver slows a GPU down, by reason.", "short",
             [(f"max by (namespace, job, instance, device, reason) (lockstep_device_throttled{{{JOB}}})",
               "{{instance}} GPU {{device}} {{reason}}")]),
            ("GPU errors", "Xid errors while the job ran, and uncorrected memory errors since the driver was loaded.", "short",
             [(f"sum by (namespace, job, instance, device) (lockstep_device_xid_errors_total{{{JOB}}})",
               "{{instance}} GPU {{device}} Xid"),
              (f"max by (namespace, job, instance, device) (lockstep_device_ecc_uncorrected_errors{{{JOB}}})",
               "{{instance}} GPU {{device}} ECC")]),
            # dcgm-exporter's labels of the pod are exported_… unless honorLabels is set.
            ("Tensor cores (dcgm-exporter)", "Share of the time in which tensor cores worked, of GPUs that a pod of the job has. "
             "Needs NVIDIA's dcgm-exporter.", "percentunit",
             [('label_replace(label_replace(DCGM_FI_PROF_PIPE_TENSOR_ACTIVE, "pod", "$1", "exported_pod", "(.+)"), "namespace", "$1", '
               f'"exported_namespace", "(.+)") * on (namespace, pod) group_left (job) max by (namespace, pod, job) (lockstep_job_info{{{JOB}}})',
               "{{job}} {{pod}} GPU {{gpu}}")]),
        ]),
    ]


def operator_panels() -> list:
    by = "namespace, job"
    seconds = [(0.5, "p50"), (0.99, "p99")]
    return [
        ("Jobs", [
            ("Jobs by phase", "TrainingJobs that the operator knows of.", "short",
             [(f"max by ({by}, phase) (lockstep_jobs{{{OPERATOR}}})", "{{phase}}")]),
            ("From creation to running", "Until all replicas of a job ran for the first time.", "s",
             [(quantile(q, "lockstep_job_create_to_launch_seconds", by, OPERATOR), name) for q, name in seconds]),
            ("Leader", "1 for the operator that acts.", "short",
             [(f"max by ({by}, instance) (leader_election_master_status{{{OPERATOR}}})", "{{instance}}")]),
        ]),
        ("Work", [
            ("Looks at jobs", "In a second, by what came of them.", "ops",
             [(rate("controller_runtime_reconcile_total", by + ", result", OPERATOR), "{{result}}")]),
            ("Time of a look", "What one look at a job takes.", "s",
             [(quantile(q, "controller_runtime_reconcile_time_seconds", by, OPERATOR), name) for q, name in seconds]),
            ("Waiting for a look", "How long a job is in the queue.", "s",
             [(quantile(q, "workqueue_queue_duration_seconds", by, OPERATOR), name) for q, name in seconds]),
            ("Queue", "Jobs that wait for a look.", "short", [(f"max by ({by}) (workqueue_depth{{{OPERATOR}}})", "{{namespace}}")]),
            ("Put into the queue", "Jobs in a second, and those of them after a failure.", "ops",
             [(rate("workqueue_adds_total", by, OPERATOR), "all"), (rate("workqueue_retries_total", by, OPERATOR), "after a failure")]),
            ("Time of a turn", "From a job's turn to its end.", "s",
             [(quantile(q, "workqueue_work_duration_seconds", by, OPERATOR), name) for q, name in seconds]),
        ]),
        ("API server", [
            ("Requests", "In a second, by method and answer; code 0: none.", "reqps",
             [(rate("rest_client_requests_total", by + ", method, code", OPERATOR), "{{method}} {{code}}")]),
        ]),
        ("Process", [
            ("Processor", "Cores that the operator takes.", "short",
             [(rate("process_cpu_seconds_total", by + ", instance", OPERATOR), "{{instance}}")]),
            ("Memory", "Resident.", "bytes",
             [(f"max by ({by}, instance) (process_resident_memory_bytes{{{OPERATOR}}})", "{{instance}}")]),
            ("Open files", "And how many there may be.", "short",
             [(f"max by ({by}, instance) (process_open_fds{{{OPERATOR}}})", "{{instance}}"),
              (f"max by ({by}, instance) (process_max_fds{{{OPERATOR}}})", "{{instance}} limit")]),
            ("Versions", "What runs, one row a process.", "table", [(f"lockstep_build_info{{{OPERATOR}}}", "")]),
        ]),
    ]


def variable(name: str, label: str, query: str, several: bool) -> dict:
    return {"name": name, "label": label, "type": "query", "datasource": DATASOURCE, "definition": query, "refresh": 2, "sort": 1,
            "query": {"query": query, "refId": name}, "multi": several, "includeAll": several,
            **({"current": {"text": "All", "value": "$__all"}} if several else {})}


def panel(number: int, x: int, y: int, content: tuple) -> dict:
    title, description, unit, targets = content
    table = unit == "table"
    # (A gauge of a share ends where it can, a spike does not.)
    defaults = {"unit": "none" if table else unit, "min": 0}
    if not table:
        defaults["custom"] = {"lineWidth": 1, "fillOpacity": 8, "showPoints": "never"}
    return {"id": number, "type": "table" if table else "timeseries", "title": title, "description": description,
            "datasource": DATASOURCE, "gridPos": {"x": x, "y": y, "w": WIDTH, "h": HEIGHT},
            "fieldConfig": {"defaults": defaults, "overrides": []},
            "options": {} if table else {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi"}},
            "targets": [{"refId": chr(ord("A") + i), "datasource": DATASOURCE, "expr": expression, "legendFormat": legend,
                         **({"format": "table", "instant": True} if table else {})} for i, (expression, legend) in enumerate(targets)]}


def dashboard(uid: str, title: str, description: str, info: str, rows: list) -> dict:
    panels, y = [], 0
    for heading, contents in rows:
        panels.append({"id": len(panels) + 1, "type": "row", "title": heading, "collapsed": False, "panels": [],
                       "gridPos": {"x": 0, "y": y, "w": COLUMNS * WIDTH, "h": 1}})
        y += 1
        for i, content in enumerate(contents):
            panels.append(panel(len(panels) + 1, i % COLUMNS * WIDTH, y + i // COLUMNS * HEIGHT, content))
        y += -(-len(contents) // COLUMNS) * HEIGHT
    of_namespace = info.rstrip("}") + (", " if "{" in info else "{") + 'namespace=~"$namespace"}'
    variables = [{"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"},
                 variable("namespace", "Namespace", f"label_values({info}, namespace)", True),
                 variable("job", "Job", f"label_values({of_namespace}, job)", True)]
    return {"uid": uid, "id": None, "title": title, "description": description, "tags": ["lockstep"], "editable": True,
            "schemaVersion": 39, "version": 1, "refresh": "30s", "time": {"from": "now-1h", "to": "now"}, "timezone": "",
            "graphTooltip": 1, "annotations": {"list": []}, "links": [], "templating": {"list": variables}, "panels": panels}


ALL = {
    "jobs": lambda: dashboard("lockstep-jobs", "Lockstep / Jobs", "TrainingJobs: how fast, how healthy, and where their time goes.",
                              "lockstep_job_info", jobs_panels()),
    "operator": lambda: dashboard("lockstep-operator", "Lockstep / Operator", "The operator that runs the TrainingJobs of a cluster.",
                                  'leader_election_master_status{name="lockstep-operator"}', operator_panels()),
}
