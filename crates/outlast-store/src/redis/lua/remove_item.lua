return remove_item(take(), take())
