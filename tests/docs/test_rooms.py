"""The picture of the core's rooms agrees with the import contracts and the packages."""

import draw_rooms


def test_the_picture_is_up_to_date() -> None:
    """Else run: python docs/draw_rooms.py."""
    assert draw_rooms.picture() == draw_rooms.PICTURE.read_text(), "run: python docs/draw_rooms.py"


def test_every_package_of_the_core_is_in_the_picture() -> None:
    folders = {path.parent.name for path in (draw_rooms.ROOT / "flowcore").glob("*/__init__.py")}
    assert set(draw_rooms.rooms()) == folders
    for room in draw_rooms.rooms():
        for part in (draw_rooms.ROOT / "flowcore" / room).glob("*/__init__.py"):
            assert part.parent.name in draw_rooms.picture()
