"""Where the modules are that a script calls: asked for by the original, seen in the port."""

import pytest
import recorded
from recorded import MODEL

pytestmark = pytest.mark.processes

TEXT = (
    "import copy\n"
    + MODEL
    + """
class Teacher(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body = torch.nn.Linear(6, 2)
        self.register_buffer("queue", torch.rand(4))
        self.later = torch.nn.Linear(2, 1)
    def forward(self, x):
        return self.later(self.body(x))

teacher = Teacher().to("cuda")
teacher.later.cpu()
stays = torch.nn.Linear(6, 1)
average = copy.deepcopy(net)
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
for step in range(9):
    x = torch.rand(5, 6, device="cuda")
    with torch.no_grad():
        teacher(x), stays(x)
        average(x)
    net(x).sum().backward()
    optimizer.step()
"""
)


def test_a_module_is_placed_at_the_first_call_where_the_script_has_moved_it(tmp_path):
    recording, _ = recorded.run(tmp_path / "one", TEXT)
    teacher, stays, average, net = ((event["cuda"], event["cpu"]) for event in recording.of_kind("placed"))
    assert teacher == (["body.weight", "body.bias", "queue"], ["later.weight", "later.bias"])
    assert stays == ([], ["weight", "bias"])
    assert net == average and net[1] == [] and "1.running_mean" in net[0]
