"""Makes crun's config.json one for the image, as strict as an image can be run.

    bundle.py CONFIG INSPECTED ROOT DATA ENVIRONMENT…

CONFIG is what `crun spec` writes, INSPECTED what `buildah inspect` says of the image. DATA is the folder for /data.
"""

import json
import sys
from pathlib import Path

path, inspected, root, data, *environment = sys.argv[1:]
image = json.loads(Path(inspected).read_text())["Docker"]["config"]
config = json.loads(Path(path).read_text())
user, group = map(int, image["User"].split(":"))
config["root"] = {"path": root, "readonly": True}
process = config["process"]
process.update(
    terminal=False,
    args=image["Entrypoint"],
    cwd=image["WorkingDir"],
    env=[*image["Env"], *environment],
    user={"uid": user, "gid": group},
    capabilities={},
    noNewPrivileges=True,
)
config["mounts"] = [mount for mount in config["mounts"] if mount["destination"] != "/sys/fs/cgroup"]
config["mounts"].append({"destination": "/data", "type": "bind", "source": data, "options": ["bind", "rw"]})
# It shares the network of the test, which asks it.
linux = config["linux"]
linux["namespaces"] = [space for space in linux["namespaces"] if space["type"] not in ("network", "cgroup")]
linux.pop("resources", None)
Path(path).write_text(json.dumps(config))
